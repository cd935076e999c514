"""Read and write `choices.toml`, the author's editable decisions about posts."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ownwords.archive.report import PostSummary
from ownwords.archive.report_view import flags
from ownwords.archive.selection import AuthorChoice, Decision
from ownwords.core.config import parse_toml
from ownwords.core.errors import ConfigError
from ownwords.core.validation import decode
from ownwords.view.format import plain

_HEAD = """\
# Decisions about the posts that stand out. Change any `decision`, then run the same `ownwords look`
# again: your decisions are kept, and never asked about or overwritten. Your own comments are lost
# when the file is written again.
#
#   "keep"       train on every word of the post
#   "cap"        train on its first `training_words` words only
#   "leave out"  do not train on it; it stays in the archive, to be searched and cited
#
# You can add any other post by its id (`ownwords look --json` lists them all):
#
#   [[post]]
#   id = "blog:post/12"
#   decision = "leave out"
"""


@dataclass(frozen=True)
class _Entry:
    id: str
    decision: Decision
    proposed: str = ""
    title: str = ""
    why: str = ""
    words: int = 0
    training_words: int = 0


@dataclass(frozen=True)
class _ChoicesFile:
    post: list[_Entry] = field(default_factory=list)


def read_bytes(path: Path) -> bytes:
    """The file's content; b"" if it does not exist. Raises ConfigError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="make it a file that you can read, or move it away: it is then written again",
        ) from error


def read_choices(path: Path) -> list[AuthorChoice]:
    """Read the author's own decisions; unchanged defaults do not count."""
    return parse_choices(read_bytes(path), path)


def parse_choices(data: bytes, path: Path) -> list[AuthorChoice]:
    """Parse the author's own decisions; raises ConfigError that names what is wrong."""
    try:
        # Notepad writes a byte order mark.
        document = parse_toml(data.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="correct that line, or delete the file"
        ) from error
    # Unknown content is refused, as rewriting the file would silently lose it.
    posts = decode(_ChoicesFile, document, source=str(path)).post
    for id_, times in Counter(post.id for post in posts).items():
        if times > 1:
            raise ConfigError(
                f"{path}: there are two entries for {id_!r}", hint="delete one of them"
            )
    return [
        AuthorChoice(post.id, post.decision) for post in posts if post.decision != post.proposed
    ]


def write_choices(posts: Sequence[PostSummary], choices: Iterable[AuthorChoice]) -> str:
    """The text of choices.toml: the posts that stand out and those with an author's choice."""
    chosen = {choice.id: choice for choice in choices}
    parts = [_HEAD]
    for post in posts:
        choice = chosen.pop(post.id, None)
        if not choice and post.decision == "keep" and not post.flags:
            continue
        lines = [
            "[[post]]",
            f"id = {_quoted(post.id)}",
            f"title = {_quoted(plain(post.title, 160))}",
        ]
        lines.append(f"decision = {_quoted(post.decision)}")
        if not choice:
            # Lets `parse_choices` tell a changed decision from an unchanged default.
            lines.append(f"proposed = {_quoted(post.decision)}")
        lines.append(f"why = {_quoted(plain(post.reason) or flags(post))}")
        lines.append(f"words = {post.words}")
        lines.append(f"training_words = {post.training_words}")
        parts.append("\n".join(lines) + "\n")
    # Keep choices about missing posts, since a post may come back.
    for choice in chosen.values():
        parts.append(
            f"[[post]]\nid = {_quoted(choice.id)}\ndecision = {_quoted(choice.decision)}\n"
            'why = "not in the archive at present"\n'
        )
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A TOML basic string: a JSON string, whose escapes TOML shares, with DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
