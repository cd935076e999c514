"""HTML markup as values: text is escaped only here, when it enters a tag."""

from html import escape

from ownwords.archive.report.formatting import count, plain, title_of

# Limits the page's size: a list shows _OPEN_ROWS entries, unfolds to MANY, and is cut there.
MANY = 200
_OPEN_ROWS = 8

_VOID = frozenset({"meta", "br"})


class Html(str):
    """Markup that needs no escaping; any other string is text."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | bool | None) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; None and False are omitted."""
    opening = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(attribute)
        elif value is not None and value is not False:
            opening.append(f'{attribute}="{escape(plain(value))}"')
    start = f"<{' '.join(opening)}>"
    return Html(start) if name in _VOID else Html(f"{start}{join(*children)}</{name}>")


def join(*parts: str | None) -> Html:
    """Concatenate the parts; any that are not Html are cleaned and escaped."""
    return Html("".join(_markup(part) for part in parts if part))


def _markup(part: str) -> str:
    # Keep spaces at the ends, which matter between two tags.
    if isinstance(part, Html):
        return part
    lead = " " if part[:1].isspace() else ""
    trail = " " if part[-1:].isspace() and part.strip() else ""
    return lead + escape(plain(part), quote=False) + trail


def post_link(title: str, url: str = "") -> Html:
    """A title, linked if its web address is known."""
    name = tag("bdi", title_of(title))
    # Any other scheme (javascript:, data:) would run in the reader's browser.
    if url.lower().startswith(("https://", "http://")):
        return tag("a", name, href=url, rel="noreferrer")
    return name


def folded(summary: str, *children: str | None, class_: str | None = None) -> Html:
    """A <details> element, which unfolds without a script."""
    return tag("details", tag("summary", summary), *children, class_=class_)


def table(caption: str, heads: list[str], rows: list[list[str]], class_: str) -> Html:
    """A table with column headers; the first cell of a row is its header."""
    head = tag("tr", *(tag("th", h, scope="col") for h in heads))
    body = (
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    )
    return tag(
        "table",
        tag("caption", caption),
        tag("thead", head),
        tag("tbody", *body),
        class_=class_,
    )


def rest(total: int, shown: int, noun: str) -> Html | None:
    """A line with the number of entries not shown."""
    if total <= shown:
        return None
    more = f"And {count(total - shown, f'more {noun}')}; "
    command = tag("code", "ownwords look --json")
    return tag("p", more, command, " lists all.", class_="quiet")


def long_table(
    caption: str, heads: list[str], rows: list[list[str]], class_: str, noun: str
) -> Html:
    """A table with its first rows open and the others folded."""
    more = rows[_OPEN_ROWS:MANY]
    further = table(f"{caption}, further", heads, more, class_)
    return join(
        table(caption, heads, rows[:_OPEN_ROWS], class_),
        folded(f"{count(len(more))} more", further) if more else None,
        rest(len(rows), MANY, noun),
    )


def long_list(items: list[Html], total: int, noun: str, class_: str) -> Html:
    """A list with its first entries open, the others folded; `total` may exceed `items`."""
    more = items[_OPEN_ROWS:]
    return join(
        tag("ul", *items[:_OPEN_ROWS], class_=class_),
        folded(f"{count(len(more))} more", tag("ul", *more, class_=class_)) if more else None,
        rest(total, len(items), noun),
    )
