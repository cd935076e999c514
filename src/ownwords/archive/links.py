"""Resolve links: to a document of the archive, elsewhere on the site, outside, or dead."""

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urljoin, urlsplit

from ownwords.archive.document import RawDocument

LinkState = Literal["internal", "site", "external", "dead", "other"]

# Addresses on the site that are not documents: listings, feeds, files.
_NOT_A_DOCUMENT = re.compile(
    r"^$|^(subscribe|tags?|categor(y|ies)|authors?|page|feed|rss|search|archives?|media|assets|static|images?"
    r"|img|files?|uploads?|wp-content|wp-admin|content)(/|$)"
)
_POST_NUMBER = re.compile(r"(?<![^&])(?:p|page_id)=\d+(?![^&])")
_DATES = re.compile(r"^(19|20)\d\d(/\d\d?){0,2}$")  # yearly, monthly and daily archive pages
_FILE = re.compile(r"\.(?!html?$|php$|aspx?$|md$|markdown$)[a-z0-9]{2,5}$")


@dataclass(slots=True)
class LinkResolver:
    """Resolves links by all known addresses of an archive's documents."""

    targets: dict[str, str] = field(default_factory=dict)  # normalised address -> document id
    hosts: set[str] = field(default_factory=set)

    def add(self, document_id: str, document: RawDocument) -> None:
        """Register the addresses of a document; an address already taken stays as it is."""
        for address in (document.url, document.ref, *document.aliases):
            if address:
                self.targets.setdefault(_normalise(address), document_id)

    def add_home(self, address: str) -> None:
        """Register the home address of a site: links to its host are internal."""
        try:
            host = _host(urlsplit(address).netloc)
        except ValueError:  # an invalid address typed into a site's settings
            return
        if host:
            self.hosts.add(host)

    def resolve(self, href: str, base: str) -> tuple[LinkState, str]:
        """The state of a link and the id of its target; `base` is its document's base address."""
        href = href.strip()
        if href.startswith("ref:"):
            target = self.targets.get(_normalise(unquote(href[4:])))
            return ("internal", target) if target else ("dead", "")
        try:
            address = urljoin(base, href)
            parts = urlsplit(address)
        except ValueError:  # an invalid address such as "http://["
            return "other", ""
        if parts.scheme not in ("http", "https", "") or href.startswith("#") or not href:
            return "other", ""
        target = self.targets.get(_normalise(address))
        if target:
            return "internal", target
        if parts.netloc and _host(parts.netloc) not in self.hosts:
            return "external", ""
        local = _normalise(parts._replace(scheme="", netloc="").geturl())
        if local and local in self.targets:  # a document known only by its path
            return "internal", self.targets[local]
        path = _path(parts.path)
        if (
            _NOT_A_DOCUMENT.search(path)
            or _DATES.search(path)
            or _FILE.search(parts.path.casefold())
        ):
            return "site", ""
        return "dead", ""


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2].casefold().removeprefix("www.")


def _path(path: str) -> str:
    plain = unquote(path).casefold().strip("/")
    plain = re.sub(r"(^|/)index\.(html?|php)$", "", plain)
    return re.sub(r"\.(html?|md|markdown)$", "", plain)


def _normalise(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    # WordPress's default addresses identify posts by number ("?p=12").
    number = _POST_NUMBER.search(parts.query)
    place = _path(parts.path) + (f"?{number[0]}" if number else "")
    return f"//{_host(parts.netloc)}/{place}" if parts.netloc else place
