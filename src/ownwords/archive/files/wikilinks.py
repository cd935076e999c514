"""Convert the link syntax of note-taking and site programs to Markdown links to `ref:`."""

import re
from pathlib import PurePosixPath
from urllib.parse import quote

# A longer line is not prose, and matching its pairs of backquotes takes too long.
_LONGEST_LINE = 100_000
_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})")
_LINKS = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<embed>!)?\[\[(?P<target>[^\[\]|\n\s][^\[\]|\n]*)(?:\\?\|(?P<text>[^\[\]\n]*))?\]\](?!\()"
    r"|\{%-?\s*(?:post_url|link)\s+(?P<post>[^%{}]+?)\s*-?%\}"
    r"|\{\{[<%]\s*(?:rel)?ref\s+\"?(?P<file>[^\"{}<>]+?)\"?\s*[>%]\}\}"
)
_NAME_OF_PARAGRAPH = re.compile(r"(?:^|(?<=[ \t]))\^[A-Za-z0-9-]+[ \t]*$")
_MARKED = re.compile(r"(?<!=)==(?=[^\s=])([^=\n]*[^\s=])==(?!=)")
_FILES = re.compile(
    r"\.(png|jpe?g|gif|svg|webp|avif|bmp|pdf|mp[34]|m4a|wav|ogg|webm|mov|canvas|base)$",
    re.IGNORECASE,
)


def rewrite_wikilinks(text: str, vault: bool = False) -> str:
    """Rewrite `[[note|words]]`, `{% post_url %}` and `{{< ref >}}` to `ref:` links outside code.

    `![[picture.png]]` is dropped; `![[note]]`, which embeds a note, becomes a link to it.
    In an Obsidian `vault`, `==marked==` words lose their marks and paragraphs their `^ids`.
    """
    if not vault and "[[" not in text and "{%" not in text and "{{" not in text:
        return text
    lines = text.split("\n")
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and len(line) < _LONGEST_LINE:
            line = _LINKS.sub(_link, line)  # noqa: PLW2901
            lines[number] = line if not vault or "`" in line else _unmarked(line)
    return "\n".join(lines)


def _unmarked(line: str) -> str:
    unnamed = _NAME_OF_PARAGRAPH.sub("", line)
    return _MARKED.sub(r"\1", unnamed if unnamed == line else unnamed.rstrip())


def _link(match: re.Match[str]) -> str:
    if match["code"]:
        return match[0]
    if post := match["post"]:
        return _address(post.strip("\"'"))
    if file := match["file"]:
        return _address(file.partition("#")[0])
    target, _, part = match["target"].strip().rstrip("\\").partition("#")
    if match["embed"] and _FILES.search(target):
        return ""
    text = (match["text"] or (f"{target} > {part}" if target and part else target or part)).strip()
    shown = re.sub(r"([\[\]])", r"\\\1", text)
    return f"[{shown}](<{_address(target)}>)" if target else shown


def _address(name: str) -> str:
    path = PurePosixPath(name.strip())
    plain = str(path.with_suffix("")) if path.suffix in (".md", ".markdown") else str(path)
    return "ref:" + quote(plain, safe="/")
