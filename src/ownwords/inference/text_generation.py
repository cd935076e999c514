"""Text that goes on: the one room where ids and their tokenizer meet."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ownwords.inference.copy_guard import CopyGuard
from ownwords.inference.detokenizer import IncrementalDetokenizer
from ownwords.inference.engine import Engine
from ownwords.inference.generation import FinishReason, GeneratedToken, Request, generate
from ownwords.inference.sampling import SamplingParams
from ownwords.inference.scheduler import BatchScheduler, RequestHandle
from ownwords.inference.speculate import Proposer
from ownwords.tokenizers.tokenizer import Tokenizer

# How every text is drawn unless somebody says otherwise, the scorecard's samples among them. As the
# model foresees, without what is far less likely than the likeliest: colder or narrower choices end
# in loops where a model is small (docs/log.md).
DEFAULT_SAMPLING: Final = SamplingParams(temperature=1.0, min_p=0.02)

_AT_ONCE = 8  # texts of one prompt; more wait


@dataclass(frozen=True, slots=True)
class TextOutcome:
    """What became of a text: the tokens that were drawn for it, and why it ended."""

    tokens: int
    finished: FinishReason


TextGenerator = Generator[str, None, TextOutcome]  # the pieces of a text as they come


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a text that begins so."""
    ids = [] if tokenizer.start is None else [tokenizer.start]
    ids += tokenizer.encode(prompt)
    if not ids and tokenizer.end is not None:
        ids = [tokenizer.end]  # where one document ends the next begins
    return ids


def stop_token_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end a text: of its end, and of another's beginning."""
    return frozenset(stop for stop in (tokenizer.end, tokenizer.start) if stop is not None)


def eos_token_ids(generation: Mapping[str, object]) -> Sequence[int]:
    """The ids that end a text or a turn by a model's generation_config.json."""
    given = generation.get("eos_token_id")
    several = given if isinstance(given, list) else [given]
    return [i for i in several if isinstance(i, int) and not isinstance(i, bool) and i >= 0]


def request(
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    *,
    tokens: int,
    seed: int = 1,
    sampling: SamplingParams = DEFAULT_SAMPLING,
    guard: CopyGuard | None = None,
    ends_too: Iterable[int] = (),
    logprobs: int = 0,
) -> Request:
    """What is asked of an engine for a text that begins so, or goes on from these ids.

    All that it draws is text. `ends_too` are ids that end it beside the tokenizer's own.
    """
    if tokenizer.gaps:
        never = dict.fromkeys(tokenizer.gaps, float("-inf"))
        sampling = replace(sampling, bias={**sampling.bias, **never})
    return Request(
        ids=encode_prompt(tokenizer, prompt) if isinstance(prompt, str) else prompt,
        tokens=tokens,
        sampling=sampling,
        vocabulary=tokenizer.vocabulary_size,
        seed=seed,
        stops=stop_token_ids(tokenizer).union(ends_too),
        logprobs=logprobs,
        guard=guard,
    )


def write(
    engine: Engine,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    seed: int = 1,
    sampling: SamplingParams = DEFAULT_SAMPLING,
    stops: Sequence[str] = (),
    guard: CopyGuard | None = None,
    proposer: Proposer | None = None,
) -> TextGenerator:
    """What follows the prompt, in whole characters as they come, up to so many tokens.

    It ends earlier where the model ends the document or begins another, and before any of `stops`.
    The same seed writes the same text. Beyond the context the text goes on from its later half.
    """
    asked = request(tokenizer, prompt, tokens=tokens, seed=seed, sampling=sampling, guard=guard)
    return stream_request(engine, tokenizer, asked, stops, proposer=proposer)


def stream_request(
    engine: Engine,
    tokenizer: Tokenizer,
    asked: Request,
    stops: Sequence[str] = (),
    *,
    proposer: Proposer | None = None,
) -> TextGenerator:
    """The same for a request as it stands."""
    # What cannot be is said here, and not when the first piece is asked for.
    decoding = IncrementalDetokenizer(tokenizer, asked.ids, stops)
    return _written(decoding, asked.tokens, generate(engine, asked, proposer=proposer))


def _written(
    decoding: IncrementalDetokenizer, most: int, drawing: Iterable[GeneratedToken]
) -> TextGenerator:
    count = 0
    for drawn in drawing:
        count += 1
        if text := decoding.feed(drawn.id):
            yield text
        if decoding.stop is not None:
            return TextOutcome(count, "stop")
    if text := decoding.finish():
        yield text
    return TextOutcome(count, "length" if count == most and decoding.stop is None else "stop")


def write_several(
    engine: Engine,
    tokenizer: Tokenizer,
    asked: Request,
    stops: Sequence[str] = (),
    *,
    seeds: Sequence[int],
) -> list[str]:
    """The text of a request for each seed, as `stream_request` would have it; in one batch."""
    if not seeds:
        return []
    under_way = [IncrementalDetokenizer(tokenizer, asked.ids, stops) for _ in seeds]
    texts = [""] * len(seeds)
    scheduler = BatchScheduler(
        engine, rows=min(len(seeds), _AT_ONCE), length=len(asked.ids) + asked.tokens
    )
    try:
        numbers: dict[RequestHandle, int] = {
            scheduler.submit(replace(asked, seed=seed)): number for number, seed in enumerate(seeds)
        }
        while numbers:
            for handle, several, finished in scheduler.step():
                number = numbers[handle]
                if handle.error:
                    raise handle.error
                decoding = under_way[number]
                texts[number] += "".join(decoding.feed(drawn.id) for drawn in several)
                if finished:
                    texts[number] += decoding.finish()
                if finished or decoding.stop is not None:
                    scheduler.cancel(handle)
                    del numbers[handle]
    finally:
        scheduler.close()
    return texts
