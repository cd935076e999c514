"""Small tokenizer.json files of the kinds that others publish, made on the spot."""

import json
from collections.abc import Mapping

from ownwords.tokenizers.bpe import BPETokenizer
from ownwords.tokenizers.tokenizer_json import LETTER_OF

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END_OF_SPLIT = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + END_OF_SPLIT
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + END_OF_SPLIT

Json = dict[str, object]


def byte_level(pre_tokenizer: Json, specials: list[str], **fields: object) -> Json:
    pairs = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("in", "g"), ("1", "2"), ("Ġ", "Ġ")]
    tokens = [*LETTER_OF.values(), *(a + b for a, b in pairs)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(specials, len(tokens)),
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": AS_LETTERS,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [f"{a} {b}" for a, b in pairs],
        },
        **fields,
    }


def sentencepiece(normalizer: Json, decoder: Json, **fields: object) -> Json:
    words = ["▁", "t", "h", "e", "i", "n", "g", "é", "日", "▁t", "he", "▁the", "in", "ing"]
    merges = [["▁", "t"], ["h", "e"], ["▁t", "he"], ["i", "n"], ["in", "g"]]
    names = ["<unk>", "<s>", "</s>"]
    tokens = [*names, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(names, 0),
        "normalizer": normalizer,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges,
        },
        **fields,
    }


def _added(names: list[str], first: int) -> list[Json]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": first + n, "content": name, **flags, "special": True} for n, name in enumerate(names)
    ]


AS_LETTERS: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def _split(pattern: str) -> Json:
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, {**AS_LETTERS, "use_regex": False}]}


def _sequence(kind: str, *steps: Json) -> Json:
    return {"type": "Sequence", kind: list(steps)}


TO_BLANK: Json = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
FROM_BLANK: Json = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK: Json = {"type": "ByteFallback"}
FUSE: Json = {"type": "Fuse"}
STRIP: Json = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

DOCUMENTS: Mapping[str, Json] = {
    "GPT-2": byte_level(AS_LETTERS, ["<|endoftext|>"], post_processor=AS_LETTERS),
    "Llama 2": sentencepiece(
        _sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, TO_BLANK),
        _sequence("decoders", FROM_BLANK, FALLBACK, FUSE, STRIP),
        post_processor={
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
    ),
    "Llama 3": byte_level(_split(LLAMA3), ["<|begin_of_text|>", "<|end_of_text|>"]),
    "SmolLM": byte_level(
        {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, AS_LETTERS],
        },
        ["<|endoftext|>"],
    ),
    "Qwen": byte_level(_split(QWEN), ["<|im_start|>", "<|im_end|>"], normalizer={"type": "NFC"}),
    "Gemma": sentencepiece(
        TO_BLANK,
        _sequence("decoders", FROM_BLANK, FALLBACK, FUSE),
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
    ),
}
ROLES = {
    "GPT-2": ("<|endoftext|>", "<|endoftext|>"),
    "Llama 2": ("<s>", "</s>"),
    "Llama 3": ("<|begin_of_text|>", "<|end_of_text|>"),
    "SmolLM": ("<|endoftext|>", "<|endoftext|>"),
    "Qwen": ("<|im_start|>", "<|im_end|>"),
    "Gemma": ("<s>", "</s>"),
}


def files_of(kind: str) -> dict[str, bytes]:
    start, end = ROLES[kind]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": start, "eos_token": end}
    return {
        "tokenizer.json": json.dumps(DOCUMENTS[kind], ensure_ascii=False).encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }


def _letters(data: bytes) -> str:
    return "".join(LETTER_OF[byte] for byte in data)


# Its tokens are of parts of characters, of several characters, of both.
ODD = BPETokenizer(
    [
        (_letters(left), _letters(right))
        for left, right in (
            (b"\xc3", b"\xa9"),
            (b"e", b"\xc3"),
            (b"\xf0", b"\x9f"),
            (b"\xa6", b"\x8a"),
            (b"a", b"b"),
            (b"ab", b"c"),
            (b"\n", b"\n"),
        )
    ]
)
