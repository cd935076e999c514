"""Read and write `choices.toml`, the author's editable decisions about posts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args

from ownwords.archive.report import PostSummary
from ownwords.archive.report_view import flags
from ownwords.archive.selection import AuthorChoice, Decision
from ownwords.core.errors import ConfigError
from ownwords.core.safe_toml import parse_toml
from ownwords.view.format import plain

_DECISIONS = get_args(Decision)
_NAMES = ("id", "title", "decision", "proposed", "why", "words", "training_words")

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
    # Refuse unknown content, as rewriting the file would silently lose it.
    if others := [name for name in document if name != "post"]:
        raise ConfigError(
            f"{path}: {plain(others[0], 80)!r} has no meaning here",
            hint="write [[post]] before each post",
        )
    tables = document.get("post", [])
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: write [[post]], with two brackets, before each post")
    choices: list[AuthorChoice] = []
    ids: set[str] = set()
    for table in tables:
        if not isinstance(table, dict) or not isinstance(table.get("id"), str):
            raise ConfigError(f"{path}: a [[post]] has no id")
        if table["id"] in ids:
            raise ConfigError(
                f"{path}: there are two entries for {table['id']!r}", hint="delete one of them"
            )
        ids.add(table["id"])
        decision = _decision(table, path)
        if decision != table.get("proposed"):
            choices.append(AuthorChoice(table["id"], decision))
    return choices


def _decision(table: Mapping[str, Any], path: Path) -> Decision:
    id_ = table["id"]
    for name in table:
        if name not in _NAMES:
            near = get_close_matches(name, _NAMES, n=1)
            raise ConfigError(
                f"{path}: the entry for {id_!r} has {plain(name, 80)!r}, which has no meaning here",
                hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(_NAMES)}",
            )
    if "decision" not in table:
        raise ConfigError(
            f"{path}: the entry for {id_!r} has no decision",
            hint=f"write one of {', '.join(map(_quoted, _DECISIONS))}",
        )
    decision = table["decision"]
    if decision not in _DECISIONS:
        near = get_close_matches(str(decision), _DECISIONS, n=1, cutoff=0.4)
        raise ConfigError(
            f"{path}: the decision for {id_!r} is {decision!r}",
            hint=f'write decision = "{near[0] if near else _DECISIONS[0]}"',
        )
    return cast(Decision, decision)


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
