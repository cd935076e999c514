"""Expand the permalink patterns of Hugo and Jekyll ("/:year/:month/:slug/")."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath

# Jekyll's named patterns.
NAMED = {
    "date": "/:categories/:year/:month/:day/:title",
    "pretty": "/:categories/:year/:month/:day/:title",
    "ordinal": "/:categories/:year/:y_day/:title",
    "weekdate": "/:categories/:year/W:week/:short_day/:title",
    "none": "/:categories/:title",
}
_TOKEN = re.compile(r":([a-z_]+)")


def by_section(patterns: object) -> dict[str, str]:
    """The permalink patterns of a site's settings by section; "" applies to all texts."""
    if not isinstance(patterns, dict):
        return {"": patterns} if isinstance(patterns, str) else {}
    # Newer versions of Hugo have separate patterns for pages and sections.
    inner = patterns.get("page")
    patterns = patterns | inner if isinstance(inner, dict) else patterns
    return {str(key): value for key, value in patterns.items() if isinstance(value, str)}


def expand_permalink(
    pattern: str,
    called: PurePosixPath,
    *,
    slug: str,
    date: datetime | None,
    categories: Sequence[str] = (),
) -> str:
    """The address a pattern gives a text; "" if the pattern has an unknown token.

    `called` is the text's path below the folder of all texts, `slug` the address's last part.
    """
    words = {
        "slug": slug,
        "title": slug,
        "name": called.name,
        "filename": called.name,
        "contentbasename": called.name,
        "slugorfilename": slug,
        "slugorcontentbasename": slug,
        "section": called.parts[0] if len(called.parts) > 1 else "",
        "sections": called.parent.as_posix() if len(called.parts) > 1 else "",
        "path": called.as_posix(),
        "collection": called.parts[0].strip("_"),
        "categories": "/".join(map(slugify, categories)),
        "output_ext": "",
    }
    if date:
        words |= {
            "year": f"{date:%Y}",
            "short_year": f"{date:%y}",
            "month": f"{date:%m}",
            "i_month": str(date.month),
            "monthname": f"{date:%B}",
            "day": f"{date:%d}",
            "i_day": str(date.day),
            "y_day": f"{date:%j}",
            "yearday": str(date.timetuple().tm_yday),
        }
    pattern = NAMED.get(pattern, pattern)
    if any(token not in words for token in _TOKEN.findall(pattern)):
        return ""
    address = re.sub(r"/{2,}", "/", "/" + _TOKEN.sub(lambda token: words[token[1]], pattern))
    return address.rstrip("/")


def slugify(title: str) -> str:
    """A title as part of an address: "Hats & Coats" becomes "hats-coats"."""
    return re.sub(r"[\W_]+", "-", title.casefold()).strip("-")
