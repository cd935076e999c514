"""A Day One export as its zip: two journals and a photo."""

import json
import zipfile
from pathlib import Path

NON_ASCII = "Zażółć gęślą jaźń, 日本語, 🙂, العربية"
PUBLISHED = {"entry/0A1B": "On hats", "entry/0A1C": "", "entry/0A1D": "Rain"}
DATES = {"entry/0A1B": "2020-01-31", "entry/0A1C": "2021-06-02", "entry/0A1D": "2021-06-03"}
LEFT_OUT: dict[str, int] = {}
OTHERS = 0


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
    path = folder / "Export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, entries in JOURNALS.items():
            packed.writestr(name, json.dumps({"metadata": {"version": "1.0"}, "entries": entries}))
        packed.writestr("photos/00ff.jpeg", b"\xff\xd8INTRUDER")
    return path
