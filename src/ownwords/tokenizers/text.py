"""Parts that all tokenizers share: our special tokens, and text as UTF-8."""

from ownwords.core.errors import OwnwordsError

# Not "<|start|>": llama.cpp parses that name as a token even in ordinary text.
START, END = "<|document|>", "<|end|>"
TITLE, AUTHOR = "<|title|>", "<|author|>"  # precede the title and author of a document
TURN = "<|turn|>"  # precedes the speaker's role in a conversation
SPECIAL = (START, END, TITLE, AUTHOR, TURN)


class TokenizerError(OwnwordsError):
    """A tokenizer cannot be read, does not fit its model, or cannot encode its input."""


def encode_utf8(text: str) -> bytes:
    """Encode a text as UTF-8; a lone surrogate is an error that gives its position."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has a lone surrogate (U+{ord(text[error.start]):04X}) at character"
            f" {error.start}: half a character, which has no bytes and no tokens",
            hint="it was decoded incorrectly; read the source again as UTF-8, or remove it",
        ) from None
