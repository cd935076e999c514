"""Converts prompts and conversations to token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ownwords.inference.generation import GenerationRequest
from ownwords.inference.model import Model
from ownwords.inference.text_generation import encode_prompt
from ownwords.serve.errors import invalid
from ownwords.serve.openai.request_params import GenerationParams
from ownwords.tokenizers import chat
from ownwords.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizedPrompt:
    """A prompt as token ids and as text."""

    ids: Sequence[int]
    text: str


def tokenize_prompt(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> TokenizedPrompt:
    """Tokenize a prompt given as text or as token ids, which must be in the vocabulary."""
    if isinstance(prompt, str):
        return TokenizedPrompt(encode_prompt(tokenizer, prompt), prompt)
    return TokenizedPrompt(prompt, tokenizer.decode(prompt))


def tokenize_conversation(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]
) -> TokenizedPrompt:
    """Tokenize a conversation with the model's chat template, or as plain text without one.

    As plain text, the messages follow each other, with a blank line before each except the
    assistant's, which continue the message before.
    """
    if tokenizer.template is not None:
        return TokenizedPrompt(chat.encode(tokenizer, messages, add_generation_prompt=True), "")
    text = ""
    for message in messages:
        if text and message["role"] != "assistant":
            text += "\n\n"
        text += message["content"]
    return tokenize_prompt(tokenizer, text)


def engine_requests(
    model: Model, prompt: TokenizedPrompt, params: GenerationParams
) -> list[GenerationRequest]:
    """Create the engine's requests for one prompt, one per text."""
    bias = params.sampling.bias
    if bias and max(bias) >= model.tokenizer.vocabulary_size:
        raise invalid(
            f"logit_bias names the token {max(bias)}, but the model has only"
            f" {model.tokenizer.vocabulary_size:,}",
            hint="use the token ids of this model's tokenizer",
            param="logit_bias",
            code="invalid_value",
        )
    top = params.logprob_count
    return [
        model.request(
            prompt.ids,
            max_tokens=params.max_new_tokens,
            seed=seed,
            sampling=params.sampling,
            quote=not params.guard,
            # At least 1: with 0, the engine does not return the sampled token's logprob.
            logprobs=0 if top is None else max(1, top),
        )
        for seed in params.seeds
    ]


def check_length(prompt: TokenizedPrompt, context: int, name: str) -> None:
    """Raise ApiError if the prompt is longer than the context."""
    if len(prompt.ids) > context:
        raise invalid(
            f"{name} has {len(prompt.ids):,} tokens, but the model's context is {context:,}",
            hint="shorten it; its end matters most",
            param=name,
            code="context_length_exceeded",
        )
