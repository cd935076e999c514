"""A ChatGPT export as its zip: two files, with edited and short prompts, and answers."""

import json
from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {"chat/c1": ("", "2024-03-01"), "chat/c2": ("", "2024-04-02")}
_TIMES = {"c1": 1709287200.5, "c2": 1712052000.0, "c3": 1712052000.0}

LONG = (
    "I have been thinking about hats for most of this wet week, and would like to know why my"
    " grandfather took his off when a hearse went by but not for the mayor."
)


def message(role: str, text: str, kind: str = "text", **about: object) -> object:
    parts = [text, {"content_type": "image_asset_pointer"}]
    content = {"content_type": kind, "parts": parts}
    return {"author": {"role": role}, "create_time": None, "content": content, "metadata": about}


def conversation(id_: str, *messages: object, other: object = None) -> object:
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None}}
    names = ["root", *(f"m{n}" for n in range(len(messages)))]
    for name, parent, each in zip(names[1:], names, messages, strict=False):
        mapping[name] = {"id": name, "message": each, "parent": parent}
    mapping["edited"] = {"id": "edited", "message": other, "parent": "root"}
    return {
        "title": "INTRUDER of hats",
        "create_time": _TIMES[id_],
        "update_time": _TIMES[id_] + 9,
        "mapping": mapping,
        "current_node": names[-1],
        "conversation_id": id_,
    }


CONVERSATIONS = {
    "conversations-000.json": [
        conversation(
            "c1",
            message("system", "INTRUDER " * 30, is_visually_hidden_from_conversation=True),
            message("user", "INTRUDER " * 30, "user_editable_context"),
            message("user", f"{LONG} {NON_ASCII}"),
            message("assistant", "INTRUDER " * 30),
            message("user", "INTRUDER again"),
            other=message("user", "TRASHCANARY " * 30),
        ),
    ],
    "conversations-001.json": [
        conversation("c2", message("user", f"{LONG}\n\n```\ncode()\n```", "multimodal_text")),
        conversation("c3", message("user", "INTRUDER"), message("tool", "INTRUDER")),
    ],
}


def write(folder: Path) -> Path:
    """Write the export."""
    files = {name: json.dumps(each) for name, each in CONVERSATIONS.items()}
    return write_zip(folder / "0a1b.zip", files | {"chat.html": "INTRUDER", "user.json": "{}"})
