"""A folder of text files: several encodings, one binary file."""

from pathlib import Path

from exports import NON_ASCII, write_folder

PUBLISHED = {
    "2020-01-31-on-hats.txt": ("On hats", "2020-01-31"),
    "coats.txt": ("coats", ""),
    "more/books.txt": ("books", ""),
    "old.txt": ("old", ""),
    "wide.text": ("wide", ""),
}

BYTES = {
    "2020-01-31-on-hats.txt": f"On hats\n\nA hat is a roof one wears. {NON_ASCII}\n".encode(),
    "coats.txt": b"After hats, coats.\r\nThen shoes.\r\n=====\r\nStill coats.\r\n",
    "more/books.txt": b"The first.\n* * *\nStill the first.\n\fThe second.\n",
    "old.txt": "Ein Hut für jeden Kopf, größer als nötig.".encode("cp1252"),
    "wide.text": "Kapelusz i płaszcz.".encode("utf-16"),
    "empty.txt": b"\n",
    "picture.txt": b"\x89PNG\x00\x00INTRUDER",
}


def write(folder: Path) -> Path:
    """Write the folder."""
    return write_folder(folder / "texts", BYTES)
