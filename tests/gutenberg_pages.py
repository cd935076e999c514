"""Project Gutenberg as its robot harvest shows it, on a server of the tests."""

import io
import zipfile

from loopback import Server

FIRST = "/robot/harvest?filetypes[]=txt&langs[]=en"


def book(title: str, *, encoding: str = "UTF-8", more: str = "") -> str:
    sentences = " ".join(f"This is sentence {n} of {title}." for n in range(60))
    return (
        f"The Project Gutenberg EBook of {title}, by Nobody\r\n\r\nTitle: {title}\r\n\r\n"
        f"Author: Nobody\r\n\r\nCharacter set encoding: {encoding}\r\n\r\n{more}"
        f"*** START OF THIS PROJECT GUTENBERG EBOOK {title.upper()} ***\r\n\r\n"
        f"CHAPTER I\r\n\r\n{sentences}\r\n\r\n"
        f"*** END OF THIS PROJECT GUTENBERG EBOOK {title.upper()} ***\r\n\r\nThe licence.\r\n"
    )


def zipped(*members: tuple[str, bytes | str]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def page(*links: str) -> str:
    """As the harvest writes it: & in addresses escaped."""
    lines = (f'<p><a href="{link.replace("&", "&amp;")}">{link}</a></p>' for link in links)
    return f"<!DOCTYPE HTML>\n<html><body><h1>All Files</h1>\n{''.join(lines)}\n</body></html>"


def harvest(server: Server, *numbers: int, per_page: int = 2) -> None:
    """A harvest of these books, each on the mirror that is the same server."""
    pages = [numbers[i : i + per_page] for i in range(0, len(numbers), per_page)]
    address = FIRST
    for page_number, here in enumerate(pages):
        links = [f"{server.address}/1/{n}/{n}.zip" for n in here]
        offset = here[-1]
        if page_number + 1 < len(pages):
            links.append(f"harvest?offset={offset}&filetypes[]=txt&langs[]=en")
        server.put(address, page(*links))
        address = f"/robot/harvest?offset={offset}&filetypes[]=txt&langs[]=en"
        for n in here:
            server.put(f"/1/{n}/{n}.zip", zipped((f"{n}.txt", book(f"Book {n}"))))
