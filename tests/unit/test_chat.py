"""Chat templates: the default, hostile ones, special tokens spelled in messages."""

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


DOUBLING = (
    "{%% set ns = namespace(x=%s) %%}"
    "{%% for i in range(99) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ ns.x }}"
)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 9 ** 999999999 }}",
        DOUBLING % ("10", "ns.x * ns.x"),
        DOUBLING % ("'aa'", "ns.x ~ ns.x"),
        DOUBLING % ("'aa'", "ns.x + ns.x"),
        DOUBLING % ("'aa'", "ns.x.replace('a', ns.x)"),
        DOUBLING % ("'aa'", "ns.x | replace('a', ns.x)"),
        DOUBLING % ("'aa'", "ns.x.join([ns.x, ns.x])"),
        DOUBLING % ("'aa'", "[ns.x, ns.x] | join"),
        DOUBLING % ("[1]", "[ns.x, ns.x]"),
        DOUBLING % ("[1]", "(ns.x, ns.x)"),
        DOUBLING % ("[1]", "ns.x + ns.x"),
        DOUBLING % ("[1]", "{'a': ns.x, 'b': ns.x}"),
        DOUBLING % ("[1]", "dict(a=ns.x, b=ns.x)"),
        "{% set x = 'ab' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60 + "{{ x }}",
        "{% for i in range(99999) %}" + "y" * 100_000 + "{% endfor %}",
        "{% macro f() %}{% for i in range(99999) %}"
        + "y" * 100_000
        + "{% endfor %}{% endmacro %}{{ f() | length }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
        "{{ ('a\n' * 1000000) | indent('x' * 1000000) }}",
        "{{ range(10 ** 9) | list }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ lipsum(n=100000) }}",
        "{{ (1).to_bytes(10 ** 10) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ messages | attr('__class__') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
        "{% for %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if x %}" * 3000 + "{% endif %}" * 3000,
        "{% for x in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "9" * 5000 + " }}",
        "x" * 300_000,
        "\ud800",
    ],
)
def test_a_hostile_template_is_a_clear_error(template: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        ChatTemplate(template).render(TALK)
    assert "Traceback" not in str(caught.value)
    assert len(caught.value.message) < 400


def test_an_endless_template_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ownwords.tokenizers.jinja_sandbox.LIMIT_S", 0.1)
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(TokenizerError, match=r"longer than 0\.1 seconds"):
        ChatTemplate(loops).render(TALK)


def test_printing_a_cyclic_value_ends() -> None:
    assert ChatTemplate(DOUBLING % ("1", "namespace(a=ns.x, b=ns.x)")).render([]) == "<Namespace>"


def test_a_long_conversation_is_accepted() -> None:
    talk = [{"role": "user", "content": "word " * 2000} for _ in range(300)]
    assert len(render(BYTES, talk)) > 3_000_000


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
