"""A folder of Project Gutenberg's texts: new, old, without markers, and one to be refused."""

from pathlib import Path

NON_ASCII = "Zażółć gęślą jaźń, 日本語, 🙂, العربية"
PUBLISHED = {"hats.txt": "Of Hats and Heads", "old.txt": "Coats", "unmarked.txt": "Shoes"}
DATES: dict[str, str] = {}
LEFT_OUT: dict[str, int] = {}
OTHERS = 0

PROSE = """It was in the middle of the afternoon, when hats are at their best, that
the wind, which had been waiting for it, came round the corner of the
street and took mine, _which was new_, over the wall.
"""
VERSE = """  A hat, a hat,
    upon the wall,
  And that, my friends,
    is nearly all.
"""
HEADER = """The Project Gutenberg eBook of Of Hats and Heads

This ebook is for the use of anyone anywhere in the United States. INTRUDER

Title: Of Hats
       and Heads

Author: Ann Author

Release date: January 31, 2020 [eBook #1]

*** START OF THE PROJECT GUTENBERG EBOOK OF HATS AND HEADS ***

Produced by INTRUDER and the Online Distributed Proofreading Team

"""
LICENCE = """*** END OF THE PROJECT GUTENBERG EBOOK OF HATS AND HEADS ***

INTRUDER licence, section 1. General Terms of Use.
"""
OLD_HEADER = """***The Project Gutenberg Etext of Coats, by Ann Author***

Title: Coats

Author: Ann Author

INTRUDER small print, which is legal.
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

"""
OLD_END = "End of the Project Gutenberg Etext of Coats\nINTRUDER\n"


def write(folder: Path) -> Path:
    """Write the folder."""
    root = folder / "gutenberg"
    root.mkdir(parents=True)
    chapters = [f"CHAPTER {n}\n\n{PROSE}\n{VERSE}" for n in ("I", "II", "III")]
    text = "\n\n".join([*chapters, NON_ASCII, "A later mention of Project Gutenberg, INTRUDER."])
    texts = {
        "hats.txt": f"{HEADER}{text}\n\n{LICENCE}",
        "old.txt": f"{OLD_HEADER}{PROSE * 6}\n\n{OLD_END}",
        "unmarked.txt": f"Project Gutenberg Etext of Shoes, by INTRUDER\n\n{PROSE * 3}",
        "refused.txt": f"**This is a COPYRIGHTED Project Gutenberg eBook**\n\n{HEADER}INTRUDER\n",
    }
    for name, body in texts.items():
        (root / name).write_text(body, encoding="utf-8", newline="\r\n")
    return root
