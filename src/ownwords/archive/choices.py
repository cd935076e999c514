"""`choices.toml`: what becomes of each post that stood out, to be edited by its author."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import cast, get_args

from ownwords.archive.report import PostSummary
from ownwords.archive.report.formatting import flags, plain
from ownwords.archive.selection import AuthorChoice, Decision
from ownwords.core.errors import ConfigError

_DECISIONS = get_args(Decision)
_NAMES = ("id", "title", "decision", "proposed", "why", "words", "training_words")

_HEAD = """\
# What becomes of the posts that stood out. Change any `decision`, then run the same `ownwords look`
# again: what you decide here is kept, and is never asked about or overwritten. Comments of your own
# are lost when the file is written anew.
#
#   "keep"       every word of the post may be learned from
#   "cap"        only its first `training_words` words are
#   "leave out"  it stays in the archive, to be searched and cited, but is not learned from
#
# A post that is not listed can be added by its id (`ownwords look --json` lists them all):
#
#   [[post]]
#   id = "blog:post/12"
#   decision = "leave out"
"""


def read_choices(path: Path) -> list[AuthorChoice]:
    """The author's own decisions; what was written by default and not changed since is not one."""
    if not path.exists():
        return []
    try:
        # Notepad begins its files with a byte order mark.
        whole = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="mend that line, or delete the file"
        ) from error
    # The file is written anew: what is not understood would be lost without a word.
    if others := [name for name in whole if name != "post"]:
        raise ConfigError(
            f"{path}: {others[0]!r} means nothing here", hint="write [[post]] before each post"
        )
    tables = whole.get("post", [])
    if not isinstance(tables, list):
        raise ConfigError(f"{path}: write [[post]], with two brackets, before each post")
    choices: list[AuthorChoice] = []
    seen: set[str] = set()
    for table in tables:
        if not isinstance(table, dict) or not isinstance(table.get("id"), str):
            raise ConfigError(f"{path}: a [[post]] has no id")
        id_ = table["id"]
        for name in table:
            if name not in _NAMES:
                near = get_close_matches(name, _NAMES, n=1)
                raise ConfigError(
                    f"{path}: the entry for {id_!r} has {name!r}, which means nothing here",
                    hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(_NAMES)}",
                )
        if "decision" not in table:
            raise ConfigError(
                f"{path}: the entry for {id_!r} has no decision",
                hint=f"write one of {', '.join(_quoted(one) for one in _DECISIONS)}",
            )
        if id_ in seen:
            raise ConfigError(
                f"{path}: there are two entries for {id_!r}", hint="take one of them out"
            )
        seen.add(id_)
        decision = table["decision"]
        if decision not in _DECISIONS:
            near = get_close_matches(str(decision), _DECISIONS, n=1, cutoff=0.4)
            raise ConfigError(
                f"{path}: the decision for {id_!r} is {decision!r}",
                hint=f'write decision = "{near[0] if near else _DECISIONS[0]}"',
            )
        if decision != table.get("proposed"):
            choices.append(AuthorChoice(id_, cast(Decision, decision), by="you"))
    return choices


def write_choices(posts: Sequence[PostSummary], choices: Iterable[AuthorChoice]) -> str:
    """The file's text: the posts that stood out, and those the author decided about."""
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
            # Lets the next reading tell a decision the author changed from one left as it was.
            lines.append(f"proposed = {_quoted(post.decision)}")
        lines.append(f"why = {_quoted(plain(post.reason) or flags(post))}")
        lines.append(f"words = {post.words}")
        lines.append(f"training_words = {post.training_words}")
        parts.append("\n".join(lines) + "\n")
    # Choices about posts that are not there now: kept, for the post may come back.
    for choice in chosen.values():
        parts.append(
            f"[[post]]\nid = {_quoted(choice.id)}\ndecision = {_quoted(choice.decision)}\n"
            'why = "not in the archive at present"\n'
        )
    return "\n".join(parts)


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are among TOML's, but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
