"""What a model is to read: prompts and conversations as ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ownwords.inference.generation import GenerationRequest
from ownwords.inference.model import Model
from ownwords.inference.text_generation import encode_prompt
from ownwords.serve.openai.errors import invalid
from ownwords.serve.openai.request_params import GenerationParams
from ownwords.tokenizers import chat
from ownwords.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizedPrompt:
    """The ids to go on from, and what was given, as text."""

    ids: Sequence[int]
    text: str


def of_prompt(tokenizer: Tokenizer, given: str | Sequence[int]) -> TokenizedPrompt:
    """A text that is to be written on, or the ids of one as they stand."""
    if isinstance(given, str):
        return TokenizedPrompt(encode_prompt(tokenizer, given), given)
    return TokenizedPrompt(
        given, tokenizer.decode(given)
    )  # an error for ids that stand for nothing


def of_conversation(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> TokenizedPrompt:
    """A conversation by the model's own chat template, or as a text where it has none.

    A model without a template has not learned to answer: it writes on. What it reads then are the
    messages one after the other, a blank line before each but the assistant's. An answer of its
    own is what it wrote on from the message before, and comes right after it.
    """
    if tokenizer.template is not None:
        return TokenizedPrompt(chat.encode(tokenizer, messages, add_generation_prompt=True), "")
    text = ""
    for message in messages:
        if text and message["role"] != "assistant":
            text += "\n\n"
        text += message["content"]
    return of_prompt(tokenizer, text)


def requests_of(
    model: Model, prompt: TokenizedPrompt, order: GenerationParams
) -> list[GenerationRequest]:
    """What is asked of the engine, a text each."""
    biased = order.sampling.bias
    if biased and max(biased) >= model.tokenizer.vocabulary_size:
        raise invalid(
            f"logit_bias names the token {max(biased)}, and the model has"
            f" {model.tokenizer.vocabulary_size:,}",
            hint="use the ids of this model's own tokenizer",
            param="logit_bias",
            code="invalid_value",
        )
    return [
        model.request(
            prompt.ids,
            max_tokens=order.tokens,
            seed=seed,
            sampling=order.sampling,
            quote=not order.guarded,
            # One at least, or not even the chance of the token itself is told.
            logprobs=0 if order.likeliest is None else max(1, order.likeliest),
        )
        for seed in order.seeds()
    ]


def check_length(prompt: TokenizedPrompt, length: int, name: str) -> None:
    """Refused where a prompt is longer than what the model is given to see of a text."""
    if len(prompt.ids) > length:
        raise invalid(
            f"{name} has {len(prompt.ids):,} tokens, and this model sees {length:,}",
            hint="shorten it; the last part of it is what counts most",
            param=name,
            code="context_length_exceeded",
        )
