"""Text that goes on: the one room where ids and their tokenizer meet."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ownwords.inference.desk import Desk, Ticket
from ownwords.inference.engine import Engine
from ownwords.inference.generation import Request, generate
from ownwords.inference.guard import Guard
from ownwords.inference.sampling import Sampling
from ownwords.inference.speculate import Proposer
from ownwords.inference.stopping import until
from ownwords.tokenizers.tokenizer import Tokenizer

# How every text is drawn unless somebody says otherwise, the scorecard's samples among them. As the
# model foresees, without what is far less likely than the likeliest: colder or narrower choices end
# in loops where a model is small (docs/log.md).
USUAL: Final = Sampling(temperature=1.0, min_p=0.02)

_AT_ONCE = 8  # texts of one prompt; more wait


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


def request(
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    seed: int = 1,
    sampling: Sampling = USUAL,
    guard: Guard | None = None,
) -> Request:
    """What is asked of an engine for a text that begins so; all that it draws is text."""
    if tokenizer.gaps:
        never = dict.fromkeys(tokenizer.gaps, float("-inf"))
        sampling = replace(sampling, bias={**sampling.bias, **never})
    return Request(
        ids=begun(tokenizer, prompt),
        tokens=tokens,
        sampling=sampling,
        vocabulary=tokenizer.vocabulary_size,
        seed=seed,
        stops=ends(tokenizer),
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
) -> Iterator[str]:
    """What follows the prompt, in whole characters as they come, up to so many tokens.

    It ends earlier where the model ends the document or begins another, and before any of `stops`.
    The same seed writes the same text. Beyond the context the text goes on from its later half.
    """
    asked = request(tokenizer, prompt, tokens=tokens, seed=seed, sampling=sampling, guard=guard)
    ids = (drawn.id for drawn in generate(engine, asked, proposer=proposer))
    return until(tokenizer.stream(ids), stops)


def write_several(
    engine: Engine,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    seeds: Sequence[int],
    tokens: int,
    sampling: Sampling = USUAL,
    stops: Sequence[str] = (),
    guard: Guard | None = None,
) -> list[str]:
    """A text for each seed, each as `write` would have it; written together, and sooner done."""
    if not seeds:
        return []
    asked = request(tokenizer, prompt, tokens=tokens, sampling=sampling, guard=guard)
    desk = Desk(engine, rows=min(len(seeds), _AT_ONCE), length=len(asked.ids) + tokens)
    told: dict[Ticket, deque[int]] = {
        desk.submit(replace(asked, seed=seed)): deque() for seed in seeds
    }

    def ids(ticket: Ticket) -> Iterator[int]:
        """Those of one text; whoever finds none waiting sees to it that all go on."""
        while True:
            while told[ticket]:
                yield told[ticket].popleft()
            if ticket.error:
                raise ticket.error
            if ticket.finished:
                return
            for other, more, _ in desk.step():
                told[other].extend(one.id for one in more)

    pieces = {ticket: until(tokenizer.stream(ids(ticket)), stops) for ticket in told}
    texts = dict.fromkeys(pieces, "")
    try:
        while pieces:
            for ticket, each in list(pieces.items()):
                piece = next(each, None)
                if piece is None:
                    del pieces[ticket]
                    desk.cancel(ticket)
                else:
                    texts[ticket] += piece
    finally:
        desk.close()
    return list(texts.values())
