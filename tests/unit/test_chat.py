"""Chat templates: the default, those that reach out, special tokens spelled in messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer
from ownwords.tokenizers.chat import ChatTemplate, encode, render
from ownwords.tokenizers.text import SPECIAL, TokenizerError

TALK = [
    {"role": "user", "content": "What did I say about backups?"},
    {"role": "assistant", "content": "That they are files."},
]
BYTES = ByteTokenizer()


def test_the_default_template() -> None:
    assert render(BYTES, TALK, add_generation_prompt=True) == (
        "<|document|><|turn|>user\nWhat did I say about backups?<|end|>\n"
        "<|turn|>assistant\nThat they are files.<|end|>\n<|turn|>assistant\n"
    )
    assert render(BYTES, []) == "<|document|>"


def test_the_model_s_own_template_has_precedence() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}"
    )
    assert render(ByteTokenizer(template=template), TALK[:1]) == (
        "<|document|>What did I say about backups?<|end|>"
    )


def test_without_its_tokens_there_is_no_default_template() -> None:
    with pytest.raises(TokenizerError, match="no chat template"):
        render(BPETokenizer(special=(), start=None, end=None), TALK)


def test_the_ids_equal_those_of_the_rendered_text() -> None:
    text = render(BYTES, TALK, add_generation_prompt=True)
    assert encode(BYTES, TALK, add_generation_prompt=True) == BYTES.encode(text, special=True)


@given(st.lists(st.sampled_from([*SPECIAL, "<", "|end|>", "\U000f0000", "a", " "]), max_size=6))
def test_a_message_cannot_inject_another_role(parts: list[str]) -> None:
    content = "".join(parts)
    ids = encode(BYTES, [{"role": "user", "content": content}])
    turn, end = BYTES.special["<|turn|>"], BYTES.end
    assert BYTES.decode(ids) == f"<|document|><|turn|>user\n{content}<|end|>\n"
    assert [i for i in ids if i >= 256] == [BYTES.start, turn, end]


def test_a_tokenizer_without_special_tokens_encodes_a_conversation_too() -> None:
    plain = BPETokenizer(special=(), start=None, end=None, template="{{ messages[0].content }}")
    assert encode(plain, TALK) == plain.encode(TALK[0]["content"])


COMMON = """
{%- if tools is not none and tools is iterable %}{{ tools | tojson(indent=4) }}{% endif -%}
{%- set ns = namespace(found=false, last=messages|length - 1) -%}
{%- macro show(part) -%}[{{ part.type | upper }}: {{ part['text'] | trim }}]{%- endmacro -%}
{%- for message in messages -%}
    {%- if message.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{% continue %}{% endif -%}
    <{{ message.role | replace('user', 'u') ~ loop.index }}>
    {%- if message.content is string -%}
        {{ message.content.split('</think>')[-1].lstrip('\\n') | indent(2) }}
    {%- else -%}
        {%- for part in message['content'] %}{{ show(part) }}{% endfor -%}
    {%- endif -%}
    {%- if loop.last %}{% set ns.found = true %}{% generation %}!{% endgeneration %}{% endif -%}
{%- endfor -%}
{{ ', '.join(messages | map(attribute='role') | list) }} {{ ns.found }} {{ 7 // 2 + 2 ** 3 * 1.5 }}
{{ messages[1:] | selectattr('role', 'equalto', 'user') | list | length }}{{ dict(a=1) }}
{%- if add_generation_prompt %}{{ '<' + ('ab' * 2) + '>' }}{% endif %}
"""
PARTS: list[dict[str, object]] = [
    {"role": "user", "content": "a<think>\nb</think>\nc\nd"},
    {"role": "assistant", "content": [{"type": "text", "text": " é "}, {"type": "t", "text": "y"}]},
    {"role": "user", "content": "z"},
]


def test_the_usual_template_functions_exist() -> None:
    text = ChatTemplate(COMMON).render(PARTS, add_generation_prompt=True, tools=[{"é": None}])
    assert text == (
        '[\n    {\n        "é": null\n    }\n]<u1>c\n  d<assistant2>[TEXT: é][T: y]<u3>z!'
        "user, assistant, user True 15.0\n1{'a': 1}<abab>"
    )


def test_a_template_can_refuse_a_conversation() -> None:
    with pytest.raises(TokenizerError, match="late"):
        ChatTemplate(COMMON).render([TALK[0], {"role": "system", "content": ""}])


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
        "{% for %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "\ud800",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_clear_error(template: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        ChatTemplate(template).render(TALK)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": test_the_default_template}],
        [{"content": "who"}],
        [{"role": 5, "content": "who"}],
        ["hello"],
        "hello",
        [{"role": "user", "content": "\ud800"}],
    ],
)
def test_an_invalid_conversation_is_refused(messages: object) -> None:
    with pytest.raises(TokenizerError):
        render(BYTES, messages)  # type: ignore[arg-type]
