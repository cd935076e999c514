"""Renders and encodes conversations by a model's chat template, in a sandbox."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ownwords.tokenizers.text import END, START, TURN, TokenizerError, encode_utf8
from ownwords.tokenizers.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, object]]

# A conversation is one document; every turn names its role and ends with END, the stop token.
DEFAULT_TEMPLATE = (
    START
    + "{% for message in messages %}"
    + f"{{{{ '{TURN}' + message['role'] + '\\n' + message['content'] + '{END}\\n' }}}}"
    + "{% endfor %}"
    + f"{{% if add_generation_prompt %}}{{{{ '{TURN}assistant\\n' }}}}{{% endif %}}"
)


class ChatTemplate:
    """A Jinja chat template as in transformers.

    It sees `messages`, `add_generation_prompt` and the other variables passed to `render`.
    """

    def __init__(self, source: str = DEFAULT_TEMPLATE) -> None:
        from ownwords.tokenizers.jinja_sandbox import sandbox  # noqa: PLC0415 - Jinja

        encode_utf8(source)
        try:
            self._template = sandbox().from_string(source)
        except Exception as error:
            raise TokenizerError(
                f"the chat template cannot be used: {_first_line(error)}",
                hint="correct it in tokenizer_config.json, or take it out",
            ) from None

    def render(
        self, messages: Messages, *, add_generation_prompt: bool = False, **variables: object
    ) -> str:
        """Render a conversation as the text that the model reads.

        Each message has a `role` and the fields the template needs, usually `content`, all plain
        data. With `add_generation_prompt` the text ends where the model's answer begins.
        """
        given = _plain({"tools": None, "documents": None, **variables, "messages": messages})
        given["add_generation_prompt"] = add_generation_prompt
        try:
            return self._template.render(given)
        except Exception as error:
            raise TokenizerError(
                f"the chat template cannot write this conversation: {_first_line(error)}",
                hint="check the roles and their order, or take another template",
            ) from None


def render(
    tokenizer: Tokenizer,
    messages: Messages,
    *,
    add_generation_prompt: bool = False,
    **variables: object,
) -> str:
    """Render a conversation by the tokenizer's template, like `apply_chat_template`."""
    template = tokenizer.template
    if template is None and all(name in tokenizer.special for name in (START, TURN, END)):
        template = DEFAULT_TEMPLATE
    if template is None:
        raise TokenizerError(
            "this model has no chat template",
            hint="let it continue a text instead, or give it a template to keep to",
        )
    ids = {"bos_token": tokenizer.start, "eos_token": tokenizer.end}
    names = {name: tokenizer.decode([i]) for name, i in ids.items() if i is not None}
    return ChatTemplate(template).render(
        messages, add_generation_prompt=add_generation_prompt, **names, **variables
    )


def encode(
    tokenizer: Tokenizer, messages: Messages, *, add_generation_prompt: bool = False
) -> list[int]:
    """Encode a conversation as ids.

    Only the template inserts special tokens: their names inside a message are encoded as plain
    text, so a message can neither end its turn nor impersonate another role.
    """
    names = sorted(tokenizer.special, key=len, reverse=True)
    special = re.compile("|".join(map(re.escape, names)) or "(?!)")  # without any: matches nothing
    plain = _plain({"messages": messages})
    everything = json.dumps(plain, ensure_ascii=False)
    mark = next(chr(code) for code in range(0xF0000, 0xFFFFE) if chr(code) not in everything)

    def hide(value: object) -> object:
        match value:
            case str():
                return special.sub(lambda found: found[0][0] + mark + found[0][1:], value)
            case list():
                return [hide(entry) for entry in value]
            case dict():
                return {name: hide(entry) for name, entry in value.items()}
        return value

    hidden = [{name: hide(value) for name, value in one.items()} for one in plain["messages"]]
    text = render(tokenizer, hidden, add_generation_prompt=add_generation_prompt)
    ids: list[int] = []
    begin = 0
    for found in special.finditer(text):
        ids += tokenizer.encode(text[begin : found.start()].replace(mark, ""))
        ids.append(tokenizer.special[found[0]])
        begin = found.end()
    return ids + tokenizer.encode(text[begin:].replace(mark, ""))


def _plain(variables: Mapping[str, object]) -> dict[str, Any]:
    """Copy variables as plain JSON data, so a template can neither call nor change anything."""
    try:
        text = json.dumps(variables, ensure_ascii=False)
        encode_utf8(text)
        given = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(
            f"the conversation is not plain data: {_first_line(error)}",
            hint="messages are dictionaries of text, like {'role': 'user', 'content': '...'}",
        ) from None
    messages = given["messages"]
    if not isinstance(messages, list) or not all(
        isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages
    ):
        raise TokenizerError(
            "the conversation is not a list of messages with a role",
            hint="like [{'role': 'user', 'content': '...'}]",
        )
    return dict(given)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
