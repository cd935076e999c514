"""A Notion export as its zip: pages, a database and its table, links between them."""

from pathlib import Path

from exports import NON_ASCII, write_zip

HATS, COATS, HOME = ("0a1b2c3d4e5f60718293a4b5c6d7e8f9", "1" * 32, "2" * 32)
PUBLISHED = {
    f"page/{HATS}": ("On hats", "2020-01-31"),
    f"page/{COATS}": ("Coats", ""),
    f"page/{HOME}": ("My blog", ""),
}

FILES = {
    f"My blog {HOME}.md": "# My blog\n\nBelow are "
    f"[On hats](My%20blog%20{HOME}/Posts%20{'3' * 32}/On%20hats%20{HATS}.md) and more.\n",
    f"My blog {HOME}/Posts {'3' * 32}/On hats {HATS}.md": "# On hats\n\nDate: January 31, 2020\n"
    f"Tags: clothes, weather\nStatus: Done\n\nA hat is a roof one wears. {NON_ASCII}\n\n"
    f"See [coats](Coats%20{COATS}.md).\n\n![](Untitled.png)\n",
    f"My blog {HOME}/Posts {'3' * 32}/Coats {COATS}.md": "# Coats\n\nA coat: a wall.\nAnd more.\n",
    f"My blog {HOME}/Posts {'3' * 32}.csv": "Name,Date\nOn hats,INTRUDER\n",
    f"My blog {HOME}/Posts {'3' * 32}/Untitled.png": "INTRUDER",
}


def write(folder: Path) -> Path:
    """Write the export."""
    return write_zip(folder / "Export-0a1b2c3d-Part-1.zip", FILES)
