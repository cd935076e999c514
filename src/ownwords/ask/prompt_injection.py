"""Detects sentences in posts that look like prompt injections.

This is a second line of defence. The first: an answer must be supported by quotes from the
passages, and the model has no tools.
"""

import re

from ownwords.ask.sentence_matching import sentences

# Narrow on purpose: "ignore the previous owner" is harmless.
_INJECTION = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override|overrule|bypass)\b(?:
        [^.!?\n]{0,40}\b(?:instructions?|prompts?|guidelines)\b
        | [^.!?\n]{0,20}\babove\b
        | [^.!?\n]{0,20}\b(?:previous|prior|preceding|earlier)\s
            (?:texts?|messages?|context|passages?|rules?|commands?|directions?|words|lines?)\b)
    | \bnew\ instructions?\s*:
    | \b(?:system\ prompt|developer\ (?:prompt|message))\b
    | \byou\ are\ now\b[^.!?\n]{0,30}\b(?:assistant|mode|ai|chatbot|bot|model|jailbroken)\b
    | (?:^|[.!?:;,]\s*|\b(?:and|then|please|now|instead)\s)
        (?:print|output|reply|respond|answer|say|write|repeat|return)\b
        (?:\s+back)?\s+(?:(?:with|only|exactly)\s+)*
        (?:only|exactly|verbatim|nothing\ but|the\ following|with\ the\ words?
            |(?-i:["“'‘`]|[A-Z]{4,}\b))
    | \b(?:dear|attention|hey|to\ (?:the|any|all))\ (?:ai|llm|chatbot|assistant|language\ model)s?\b
    | \bdo\ not\ (?:tell|inform|reveal|cite)\b[^.!?\n]{0,20}\bthe\ (?:user|reader)\b
    | <\|[a-z_]+\|> | \[/?INST\] | <</?SYS>> | <(?:start|end)_of_turn>
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
# Tokens that end a turn for some models; a space after the first character disarms them.
_TURNS = re.compile(
    r"(<)(?=\||/?s>|/?bos>|/?eos>|start_of_turn>|end_of_turn>|</?SYS>>)|(\[)(?=/?INST\])|(\|)(?=>)",
    re.IGNORECASE,
)


def looks_like_injection(text: str) -> bool:
    """Whether a text looks like an instruction to a program."""
    return _INJECTION.search(text) is not None


def without_injections(text: str) -> str:
    """The text without the sentences that look like prompt injections."""
    parts = (text[begin:end] for begin, end in sentences(text))
    return "\n".join(part for part in parts if not looks_like_injection(part))


def neutralized(text: str) -> str:
    """The text with a space in everything that could end a turn; comparisons ignore spaces."""
    return _TURNS.sub(lambda match: match[0] + " ", text)
