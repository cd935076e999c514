"""A Day One export as its zip: two journals and a photo."""

import json
from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "entry/0A1B": ("On hats", "2020-01-31"),
    "entry/0A1C": ("", "2021-06-02"),
    "entry/0A1D": ("Rain", "2021-06-03"),
}


def entry(uuid: str, day: str, text: str) -> object:
    return {
        "uuid": uuid,
        "creationDate": f"{day}T10:00:00Z",
        "modifiedDate": "2023-01-01T10:00:00Z",
        "text": text,
        "tags": ["clothes"],
        "starred": False,
        "photos": [{"md5": "00ff", "identifier": "AA"}],
        "location": {"placeName": "INTRUDER"},
    }


JOURNALS = {
    "Journal.json": [
        entry("0A1B", "2020-01-31", f"# On hats\n\nA hat \\(a roof\\)\\. {NON_ASCII}"),
        entry(
            "0A1C",
            "2021-06-02",
            "After [hats](dayone://view?entryId=0A1B), coats\\.\n\n# Not a title\n\n"
            "![](dayone-moment://AA)",
        ),
    ],
    "Travel.json": [entry("0A1D", "2021-06-03", "# Rain\nAll day\\!")],
}


def write(folder: Path) -> Path:
    """Write the export."""
    journals = {
        name: json.dumps({"metadata": {"version": "1.0"}, "entries": entries})
        for name, entries in JOURNALS.items()
    }
    return write_zip(folder / "Export.zip", journals | {"photos/00ff.jpeg": "\xff\xd8INTRUDER"})
