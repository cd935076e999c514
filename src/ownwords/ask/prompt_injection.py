"""Words in a post that read like orders to a program: quoted where asked for, never followed.

Knowing the usual ones is a second lock. The first is that nothing is shown as an answer that does
not rest on words of the passages, and that the answerer has no tools at all.
"""

import re

from ownwords.ask.sentence_matching import sentences

# Narrow on purpose: whoever writes of dogs says "ignore the previous owner", and means it.
_ORDERS = re.compile(
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
# What some models take for the end of a turn wherever it stands: a space makes plain letters of it.
_TURNS = re.compile(
    r"(<)(?=\||/?s>|/?bos>|/?eos>|start_of_turn>|end_of_turn>|</?SYS>>)|(\[)(?=/?INST\])|(\|)(?=>)",
    re.IGNORECASE,
)


def looks_like_injection(text: str) -> bool:
    """Whether a stretch of text looks meant for a program that reads it."""
    return _ORDERS.search(text) is not None


def without_injections(text: str) -> str:
    """The text without the sentences that read like orders."""
    kept = [text[begin:end] for begin, end in sentences(text)]
    return "\n".join(one for one in kept if not looks_like_injection(one))


def neutralized(text: str) -> str:
    """The text with a space in whatever could end a turn; what is compared ignores spaces."""
    return _TURNS.sub(lambda found: found[0] + " ", text)
