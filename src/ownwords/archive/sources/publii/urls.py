"""The web addresses of a Publii site's posts, pages, tags and files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from ownwords.archive.document import Kind

# Posts, pages and tags have a number, authors a name; for files only the prefix is replaced.
_INTERNAL_LINK = re.compile(
    r"#INTERNAL_LINK#/(?:(?P<kind>post|page|tag)/(?P<id>[0-9]{1,18})"
    r"|author/(?P<author>[^\s\"'<>()\\#?&]+)|(?P<list>tags|frontpage|blogpage)/1|(?P<file>file)/)"
)


@dataclass(frozen=True)
class PubliiUrls:
    """The addresses of one site; they begin with "/" if its domain is unknown."""

    domain: str = ""
    clean: bool = False
    posts_prefix: str = ""
    tags_prefix: str = ""
    authors_prefix: str = "authors"
    tag_slugs: Mapping[int, str] = field(default_factory=dict)
    author_slugs: Mapping[str, str] = field(default_factory=dict)  # by user name and by number
    page_slugs: Mapping[int, str] = field(default_factory=dict)
    page_parents: Mapping[int, int] = field(default_factory=dict)

    def of(self, kind: Kind, number: int, slug: str) -> str:
        """The address of a post or page; "" if the site's address is unknown."""
        if not self.domain or not slug:
            return ""
        above = self._ancestors(number) if kind == "page" else (self.posts_prefix,)
        return self._address(*above, slug) + ("/" if self.clean else ".html")

    def resolve(self, body: str, number: int) -> str:
        """The body with Publii's placeholders replaced by addresses, or by "ref:post/12".

        Works on HTML, Markdown and block JSON: the replacements need no escaping in any of them.
        """
        body = body.replace("#DOMAIN_NAME#", self._address("media", "posts", str(number)) + "/")
        return _INTERNAL_LINK.sub(self._target, body)

    def _target(self, link: re.Match[str]) -> str:
        kind, number, author = link["kind"], link["id"], link["author"]
        if kind == "tag" and int(number) in self.tag_slugs:
            return self._address(self.tags_prefix, self.tag_slugs[int(number)]) + "/"
        if kind:
            return f"ref:{kind}/{int(number)}"
        if author:
            slug = self.author_slugs.get(author)
            return (
                f"{self._address(self.authors_prefix, slug)}/" if slug else f"ref:author/{author}"
            )
        if link["list"]:
            prefixes = {"tags": self.tags_prefix, "blogpage": self.posts_prefix}
            return self._address(prefixes.get(link["list"], "")) + "/"
        return self._address() + "/"

    def _ancestors(self, page: int) -> tuple[str, ...]:
        slugs: list[str] = []
        visited = {page}
        while self.clean and (above := self.page_parents.get(page)) is not None:
            if above in visited:
                break
            visited.add(above)
            slugs.insert(0, self.page_slugs.get(above, ""))
            page = above
        return tuple(slugs)

    def _address(self, *parts: str) -> str:
        path = "/".join(part.strip("/") for part in parts if part.strip("/"))
        # Escape only what would end an attribute, a Markdown link or a JSON string.
        safe = re.sub(r"[\s\"'<>()\\]", lambda match: quote(match[0]), path)
        return f"{self.domain}/{safe}" if safe else self.domain


def url_settings(site: Mapping[str, object]) -> PubliiUrls:
    """The address settings of a site.config.json."""
    urls = _part(_part(site, "advanced"), "urls")
    domain = _word(site, "domain").strip().rstrip("/")
    if domain and not re.match(r"(?:https?:)?//", domain):
        domain = f"https://{domain}"
    posts, tags = _word(urls, "postsPrefix"), _word(urls, "tagsPrefix")
    authors = _word(urls, "authorsPrefix") or "authors"
    return PubliiUrls(
        domain=re.sub(r"[\s\"'<>\\]", "", domain),
        clean=urls.get("cleanUrls") is True,
        posts_prefix=posts,
        tags_prefix=f"{posts}/{tags}" if tags and urls.get("tagsPrefixAfterPostsPrefix") else tags,
        authors_prefix=(
            f"{posts}/{authors}" if urls.get("authorsPrefixAfterPostsPrefix") else authors
        ),
    )


def page_parents_of(pages: object) -> dict[int, int]:
    """The page tree of pages.config.json as a map from each page's id to its parent's."""
    parents: dict[int, int] = {}
    waiting: list[tuple[object, int | None]] = [(pages, None)]
    while waiting:
        level, above = waiting.pop()
        for page in level if isinstance(level, list) else ():
            number = page.get("id") if isinstance(page, dict) else None
            if not isinstance(number, int):
                continue
            if above is not None:
                parents[number] = above
            waiting.append((page.get("subpages"), number))
    return parents


def parse_json(text: str) -> object:
    """Parse JSON; None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _part(settings: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = settings.get(name)
    return part if isinstance(part, dict) else {}


def _word(settings: Mapping[str, object], name: str) -> str:
    value = settings.get(name)
    return value if isinstance(value, str) else ""
