"""Tokenizer files: ours, imported ones, damaged ones; and whether they fit the model."""

import json
import random
import unicodedata
from copy import deepcopy
from pathlib import Path

import pytest

import damage
from foreign_tokenizers import DOCUMENTS, ROLES, files_of
from ownwords.tokenizers import tokenizer_json
from ownwords.tokenizers.bpe import BPETokenizer, ByteTokenizer, train
from ownwords.tokenizers.text import SPECIAL, TokenizerError
from ownwords.tokenizers.tokenizer import Tokenizer, load

TEXT = "The thing in the ring: it's 2012, they'd say.\n\n  Größe, 日本語 👩‍👩‍👧 \x00\u2003!"
LEARNED = train([TEXT * 3, TEXT.upper()], 320)
OURS: dict[str, Tokenizer] = {
    "bpe": LEARNED,
    "bpe without special tokens": BPETokenizer(
        [("t", "h"), ("th", "e")], special=(), start=None, end=None
    ),
    "bytes": ByteTokenizer(template="{{ messages[0]['content'] }}"),
}


@pytest.mark.parametrize("kind", OURS)
def test_a_saved_tokenizer_round_trips(kind: str, tmp_path: Path) -> None:
    ours = OURS[kind]
    for name, data in ours.files().items():
        (tmp_path / name).write_bytes(data)
    read = load(tmp_path)
    assert read.files() == ours.files()
    assert read.fingerprint() == ours.fingerprint()
    assert (read.start, read.end, read.special) == (ours.start, ours.end, ours.special)
    assert read.template == ours.template
    assert read.encode(TEXT) == ours.encode(TEXT)


def test_bytes_are_bytes() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aé") == [97, 0xC3, 0xA9]
    assert [ids.tolist() for ids in tokenizer.encode_batch(["a", ""])] == [[97], []]
    assert tokenizer.vocabulary_size == 256 + len(SPECIAL)
    assert tokenizer.encode("<|end|>a", special=True) == [tokenizer.end, 97]
    assert tokenizer.fingerprint() != BPETokenizer().fingerprint()


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_an_imported_tokenizer_round_trips_text(kind: str) -> None:
    tokenizer = Tokenizer(files_of(kind))
    for text in (TEXT, " the", "  the thing\n", "\n", "", "e\u0301\U000e0041"):
        ids = tokenizer.encode(text)
        expected = unicodedata.normalize("NFC", text) if kind == "Qwen" else text
        assert tokenizer.decode(ids) == expected
        assert tokenizer.encode_batch([text])[0].tolist() == ids
    assert len(tokenizer.encode(" the the")) < 5
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode("\udc00")


def without_bytes(kind: str, absent: bytes) -> dict[str, bytes]:
    files = files_of(kind)
    document = json.loads(files[tokenizer_json.TOKENIZER])
    for byte in absent:
        letter = tokenizer_json.LETTER_OF[byte]
        vocabulary = document["model"]["vocab"]
        vocabulary[3 * letter] = vocabulary.pop(letter)
    return files | {tokenizer_json.TOKENIZER: json.dumps(document).encode()}


def test_characters_whose_bytes_a_vocabulary_lacks_are_replaced_and_counted() -> None:
    whole = Tokenizer(files_of("SmolLM"))
    tokenizer = Tokenizer(without_bytes("SmolLM", b"\x04\x16\xc0\xf1\xf2\xff"))
    text = "the 12\x04é日\n🙂\U0010ffff\x16\U00040000 in\U0008ffff\x04"
    replaced = "the 12\ufffdé日\n🙂\U0010ffff\ufffd\ufffd in\ufffd\ufffd"
    assert tokenizer.encode(replaced) == whole.encode(replaced)
    assert tokenizer.replaced == 0
    assert tokenizer.encode(text) == whole.encode(replaced)
    assert tokenizer.replaced == 5
    assert tokenizer.encode_batch([text])[0].tolist() == whole.encode(replaced)
    assert tokenizer.decode(tokenizer.encode(text)) == replaced


@pytest.mark.parametrize("byte", b"Z\n\xbf")
def test_a_vocabulary_that_cannot_write_ordinary_text_is_refused(byte: int) -> None:
    with pytest.raises(TokenizerError, match="lacks 1 of the 256"):
        Tokenizer(without_bytes("SmolLM", bytes([byte])))


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("said", [None, True, False])
def test_prompts_begin_with_the_start_token_if_the_files_say_so(
    kind: str, said: bool | None
) -> None:
    files = files_of(kind)
    config = json.loads(files[tokenizer_json.CONFIG])
    if said is not None:
        config["add_bos_token"] = said
    files[tokenizer_json.CONFIG] = json.dumps(config).encode()
    tokenizer = Tokenizer(files)
    begins = kind == "Llama 2" or said is True  # its tokenizer.json adds the token
    assert tokenizer.adds_start == begins
    assert tokenizer.row_start == (tokenizer.start if kind == "Llama 2" else None)
    tokenizer.adds_start = True
    changed = Tokenizer(tokenizer.files())
    assert changed.adds_start
    assert (changed.start, changed.fingerprint()) == (tokenizer.start, tokenizer.fingerprint())


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_an_imported_tokenizer_keeps_special_tokens_separate(kind: str) -> None:
    tokenizer = Tokenizer(files_of(kind))
    start, end = ROLES[kind]
    assert tokenizer.start == tokenizer.special[start]
    assert tokenizer.end == tokenizer.special[end]
    text = f"the{end}the"
    assert tokenizer.end not in tokenizer.encode(text)
    assert tokenizer.encode(text, special=True).count(tokenizer.end) == 1
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_an_imported_tokenizer_is_saved_unchanged(kind: str) -> None:
    files = files_of(kind)
    tokenizer = Tokenizer(files)
    assert tokenizer.files() == files
    tokenizer.template = "{{ messages }}"
    reloaded = Tokenizer(tokenizer.files())
    assert reloaded.template == "{{ messages }}"
    assert reloaded.fingerprint() == tokenizer.fingerprint()
    assert (reloaded.start, reloaded.end) == (tokenizer.start, tokenizer.end)


def test_the_fingerprint_is_of_the_mapping_not_of_the_file() -> None:
    files = files_of("GPT-2")
    spread = json.dumps(
        json.loads(files[tokenizer_json.TOKENIZER]), indent=2, sort_keys=True
    ).encode()
    assert (
        Tokenizer({tokenizer_json.TOKENIZER: spread}).fingerprint()
        == Tokenizer(files).fingerprint()
    )
    prints = {Tokenizer(files_of(kind)).fingerprint() for kind in DOCUMENTS}
    assert len(prints) == len(DOCUMENTS)


def changed_files(kind: str, path: str, value: object) -> dict[str, bytes]:
    document = deepcopy(DOCUMENTS[kind])
    *steps, last = path.split(".")
    node: dict[str, object] = document
    for step in steps:
        node = node[step]  # type: ignore[assignment]
    node[last] = value
    return {tokenizer_json.TOKENIZER: json.dumps(document).encode()}


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("GPT-2", "normalizer", {"type": "Lowercase"}, "normalizer .*Lowercase"),
        ("GPT-2", "normalizer", {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}, "NFKC"),
        ("GPT-2", "pre_tokenizer.add_prefix_space", True, "add_prefix_space"),
        ("GPT-2", "decoder", {"type": "WordPiece", "prefix": "##"}, "decoder .*WordPiece"),
        ("GPT-2", "decoder", None, "neither byte-level"),
        ("GPT-2", "post_processor", {"type": "BertProcessing"}, "post_processor"),
        ("GPT-2", "model.type", "WordPiece", "no BPE"),
        ("GPT-2", "model", [], "no BPE"),
        ("GPT-2", "model.dropout", 0.1, "model.dropout"),
        ("GPT-2", "model.merges", ["zz zzz"], "library"),
        ("GPT-2", "added_tokens", [tokenizer_json.added_token(3, "<x>")], "another token"),
        ("Llama 2", "model.byte_fallback", False, "neither byte-level"),
        ("Llama 3", "pre_tokenizer.pretokenizers", [{"type": "Split"}], "not known here"),
        ("Gemma", "pre_tokenizer.pattern", {"Regex": "(a+)+b"}, r"not known here.*\(a\+\)\+b"),
        ("Gemma", "normalizer.content", "▁" * 1000, "content"),
    ],
)
def test_an_unknown_part_is_refused_by_name(
    kind: str, path: str, value: object, message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer(changed_files(kind, path, value))


@pytest.mark.parametrize("vocabulary", [{"a": 0}, {"a": 0, "b": 0}, {"a": 1 << 30}, {}])
def test_a_vocabulary_without_all_bytes_is_refused(vocabulary: dict[str, int]) -> None:
    files = changed_files("GPT-2", "model.vocab", vocabulary)
    document = json.loads(files[tokenizer_json.TOKENIZER])
    document["model"]["merges"] = document["added_tokens"] = []
    with pytest.raises(TokenizerError, match=r"lacks 25|has the id|gives one id"):
        Tokenizer({tokenizer_json.TOKENIZER: json.dumps(document).encode()})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"model": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"[" + b"[]," * 2_100_000 + b"1]",
        b" " * (65 << 20),
    ],
    ids=range(10),
)
def test_an_invalid_file_is_refused(data: bytes) -> None:
    for name in (tokenizer_json.TOKENIZER, tokenizer_json.CONFIG, tokenizer_json.SPECIAL_MAP):
        with pytest.raises(TokenizerError, match=name):
            Tokenizer({**files_of("GPT-2"), name: data})


def test_a_directory_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"lack tokenizer\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    "wrong", [{"bos_token": "<nobody>"}, {"bos_token": 5}, {"chat_template": 5}]
)
def test_a_config_of_another_tokenizer_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        Tokenizer({**files_of("GPT-2"), tokenizer_json.CONFIG: json.dumps(wrong).encode()})


def test_files_besides_the_config_are_read_too() -> None:
    files = files_of("Qwen")
    del files[tokenizer_json.CONFIG]
    files[tokenizer_json.SPECIAL_MAP] = b'{"eos_token": {"content": "<|im_end|>", "lstrip": false}}'
    files[tokenizer_json.TEMPLATE] = b"{{ messages }}"
    tokenizer = Tokenizer(files)
    assert tokenizer.end == tokenizer.special["<|im_end|>"]
    assert tokenizer.start is None
    assert tokenizer.template == "{{ messages }}"
    templates = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    config = json.dumps({"chat_template": templates}).encode()
    assert Tokenizer({**files_of("Qwen"), tokenizer_json.CONFIG: config}).template == "yes"


def test_damaged_files_are_read_or_refused() -> None:
    generator = random.Random(5)
    kinds = [*(files_of(kind) for kind in DOCUMENTS), LEARNED.files(), ByteTokenizer().files()]
    read = refused = 0
    for n in range(300):
        files = dict(kinds[n % len(kinds)])
        name = tokenizer_json.CONFIG if n % 10 == 9 else tokenizer_json.TOKENIZER
        change = generator.choice((damage.of_bytes, damage.of_json))
        files[name] = change(files[name], generator)
        try:
            tokenizer = Tokenizer(files)
            tokenizer.decode(tokenizer.encode(TEXT, special=True))
            tokenizer.fingerprint()
            read += 1
        except TokenizerError:
            refused += 1
    assert read > 15
    assert refused > 150
