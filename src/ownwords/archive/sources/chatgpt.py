"""Source: what the user wrote to ChatGPT: its export, as a zip or unpacked."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ownwords.archive import dates, untrusted_files
from ownwords.archive.document import (
    ExpectedCount,
    RawDocument,
    SiteInfo,
    SkippedItem,
    SourceItem,
    SourceNote,
)
from ownwords.archive.text_repair import as_object, text_value
from ownwords.core.errors import SourceError
from ownwords.core.text import count_words

NAME = "ChatGPT"

_EXPORTS = untrusted_files.ExportFormat(
    re.compile(rb'\A\s*\[\s*\{\s*"title":.{0,1000}?"create_time":.{0,300}?"mapping":', re.DOTALL),
    ("conversations.json", "conversations-*.json"),
    (".json",),
)
_MIN_WORDS = 25
_SHORT = f"a prompt of fewer than {_MIN_WORDS} words"
_ANSWER = "written by ChatGPT"


def detect(path: Path) -> str | None:
    """Recognise JSON that begins as an export does, or a folder or zip with it."""
    return "a ChatGPT export" if _EXPORTS.count(path) else None


def read(path: Path) -> Iterator[SourceItem]:
    """Yield a document for each conversation, with the user's longer prompts."""
    is_export = False
    yield SiteInfo("ChatGPT", identity="chatgpt")
    skipped: Counter[str] = Counter()
    for name, data in _EXPORTS.read(path):
        conversations = untrusted_files.parse_json(name, data)
        if not isinstance(conversations, list):
            continue
        is_export = True
        yield ExpectedCount(len(conversations))
        for conversation in map(as_object, conversations):
            if document := _document(conversation, skipped):
                yield document
    if not is_export:
        hint = "give the zip that ChatGPT sends by mail, or its conversations.json"
        raise SourceError(f"{path} holds no ChatGPT conversations", hint=hint)
    for reason, number in skipped.items():
        yield SkippedItem("answer" if reason == _ANSWER else "prompt", reason, number)
    yield SourceNote(
        "Only your own prompts are read from a ChatGPT export. Text that you pasted into a"
        " prompt counts as yours: leave such posts out."
    )


def _document(conversation: Mapping[str, Any], skipped: Counter[str]) -> RawDocument | None:
    """Return the prompts of a conversation, as the user last edited them; None without any."""
    texts, first_time = [], None
    for message in _messages(conversation):
        text = _text(message)
        if as_object(message.get("author")).get("role") != "user":
            skipped[_ANSWER] += bool(text)
        elif count_words(text) < _MIN_WORDS:
            skipped[_SHORT] += bool(text)
        else:
            texts.append(text)
            first_time = first_time or message.get("create_time")
    id_ = text_value(conversation, "conversation_id") or text_value(conversation, "id")
    if not texts or not id_:
        return None
    began = first_time or conversation.get("create_time")  # in seconds
    return RawDocument(
        ref=f"chat/{id_}",
        title="",  # ChatGPT has written it
        body="\n\n".join(texts),
        markup="markdown",
        date=dates.parse_moment(1000 * began if isinstance(began, int | float) else None),
        url=f"https://chatgpt.com/c/{id_}",
    )


def _messages(conversation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages from the first to the last one shown; edits make other branches."""
    mapping = as_object(conversation.get("mapping"))
    name, messages, seen = text_value(conversation, "current_node"), [], set[str]()
    while name in mapping and name not in seen:
        seen.add(name)
        node = as_object(mapping[name])
        messages.append(as_object(node.get("message")))
        name = text_value(node, "parent")
    return messages[::-1]


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message; "" for instructions, hidden messages, tools and pictures."""
    content, about = as_object(message.get("content")), as_object(message.get("metadata"))
    is_hidden = about.get("is_visually_hidden_from_conversation") is True
    if is_hidden or content.get("content_type") not in ("text", "multimodal_text"):
        return ""
    parts = content.get("parts")
    texts = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    return "\n\n".join(texts).strip()
