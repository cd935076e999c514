"""Text that goes on: the one room where ids and their tokenizer meet."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ownwords.inference.decoding import Decoding
from ownwords.inference.desk import Desk, Ticket
from ownwords.inference.engine import Engine
from ownwords.inference.generation import Drawn, Finished, Request, generate
from ownwords.inference.guard import Guard
from ownwords.inference.sampling import Sampling
from ownwords.inference.speculate import Proposer
from ownwords.tokenizers.tokenizer import Tokenizer

# How every text is drawn unless somebody says otherwise, the scorecard's samples among them. As the
# model foresees, without what is far less likely than the likeliest: colder or narrower choices end
# in loops where a model is small (docs/log.md).
USUAL: Final = Sampling(temperature=1.0, min_p=0.02)

_AT_ONCE = 8  # texts of one prompt; more wait


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a text: the tokens that were drawn for it, and why it ended."""

    tokens: int
    finished: Finished


Writing = Generator[str, None, Outcome]  # the pieces of a text as they come


def begun(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a text that begins so."""
    ids = [] if tokenizer.start is None else [tokenizer.start]
    ids += tokenizer.encode(prompt)
    if not ids and tokenizer.end is not None:
        ids = [tokenizer.end]  # where one document ends the next begins
    return ids


def ends(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that end a text: of its end, and of another's beginning."""
    return frozenset(stop for stop in (tokenizer.end, tokenizer.start) if stop is not None)


def ends_said(generation: Mapping[str, object]) -> Sequence[int]:
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
    sampling: Sampling = USUAL,
    guard: Guard | None = None,
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
        ids=begun(tokenizer, prompt) if isinstance(prompt, str) else prompt,
        tokens=tokens,
        sampling=sampling,
        vocabulary=tokenizer.vocabulary_size,
        seed=seed,
        stops=ends(tokenizer).union(ends_too),
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
    sampling: Sampling = USUAL,
    stops: Sequence[str] = (),
    guard: Guard | None = None,
    proposer: Proposer | None = None,
) -> Writing:
    """What follows the prompt, in whole characters as they come, up to so many tokens.

    It ends earlier where the model ends the document or begins another, and before any of `stops`.
    The same seed writes the same text. Beyond the context the text goes on from its later half.
    """
    asked = request(tokenizer, prompt, tokens=tokens, seed=seed, sampling=sampling, guard=guard)
    return write_on(engine, tokenizer, asked, stops, proposer=proposer)


def write_on(
    engine: Engine,
    tokenizer: Tokenizer,
    asked: Request,
    stops: Sequence[str] = (),
    *,
    proposer: Proposer | None = None,
) -> Writing:
    """The same for a request as it stands."""
    # What cannot be is said here, and not when the first piece is asked for.
    decoding = Decoding(tokenizer, asked.ids, stops)
    return _written(decoding, asked.tokens, generate(engine, asked, proposer=proposer))


def _written(decoding: Decoding, most: int, drawing: Iterable[Drawn]) -> Writing:
    count = 0
    for drawn in drawing:
        count += 1
        if text := decoding.feed(drawn.id):
            yield text
        if decoding.stop is not None:
            return Outcome(count, "stop")
    if text := decoding.finish():
        yield text
    return Outcome(count, "length" if count == most and decoding.stop is None else "stop")


def write_several(
    engine: Engine,
    tokenizer: Tokenizer,
    asked: Request,
    stops: Sequence[str] = (),
    *,
    seeds: Sequence[int],
) -> list[str]:
    """What is asked for once for each seed, as `write_on` would have it; together, sooner done."""
    if not seeds:
        return []
    under_way = [Decoding(tokenizer, asked.ids, stops) for _ in seeds]
    texts = [""] * len(seeds)
    desk = Desk(engine, rows=min(len(seeds), _AT_ONCE), length=len(asked.ids) + asked.tokens)
    try:
        numbers: dict[Ticket, int] = {
            desk.submit(replace(asked, seed=seed)): number for number, seed in enumerate(seeds)
        }
        while numbers:
            for ticket, several, finished in desk.step():
                number = numbers[ticket]
                if ticket.error:
                    raise ticket.error
                decoding = under_way[number]
                texts[number] += "".join(decoding.feed(drawn.id) for drawn in several)
                if finished:
                    texts[number] += decoding.finish()
                if finished or decoding.stop is not None:
                    desk.cancel(ticket)
                    del numbers[ticket]
    finally:
        desk.close()
    return texts
