"""Reads a question and a passage together: does the passage answer, and which sentence does?

The search makes its vectors separately: they tell what a passage is about, not whether it answers.
Here the lower layers of all-MiniLM-L6-v2 read each text alone, and its upper layers, changed by a
LoRA, read both; the split is DeFormer's (Cao et al. 2020, arXiv 2005.00697). The LoRA and two
linear outputs are in the package, trained by `base/reader.py`.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ownwords.core.hardware import usable_cores
from ownwords.core.text import Span
from ownwords.models.bert import Bert, BertConfig, NativeBert, bert_of
from ownwords.models.safetensors_header import map_arrays, read_header, read_metadata

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Floats = npt.NDArray[np.float32]

PACKAGED: Final = Path(__file__).with_name("reader.safetensors")
MAX_QUESTION, MAX_PASSAGE = 48, 150  # tokens


def is_for(encoder: str, path: Path = PACKAGED) -> bool:
    """Whether the reader was trained for the encoder with this digest."""
    return read_metadata(path)["encoder"] == encoder


class Window(NamedTuple):
    """A part of a passage: its title and heading, its text, and the spans of sentences in that."""

    head: str
    text: str
    sentences: tuple[Span, ...]


class Reading(NamedTuple):
    """Log odds that a window answers, without the cosine, and that each sentence does."""

    answers: float
    sentences: tuple[float, ...]

    def shares(self) -> list[float]:
        """Return for each sentence the probability that it answers."""
        odds = np.exp(np.array(self.sentences, np.float64).clip(-50, 50))
        shares: list[float] = (odds / (1 + odds.sum())).tolist()
        return shares


class Reader:
    """An encoder whose upper layers read question and passage together; thread-safe.

    The log odds of an answer also gain `cosine_weight` times the cosine of the vectors of question
    and passage, which the search adds.
    """

    def __init__(
        self,
        encoder: Bert | NativeBert,
        config: BertConfig,
        weights: Mapping[str, Floats],
        tokenizer: "Tokenizer",
        path: Path = PACKAGED,
    ) -> None:
        self._encoder, self._tokenizer = encoder, tokenizer
        arrays = map_arrays(read_header(path).values())
        stored = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        self._passage_type, self._closeness = stored["passage_type"], stored["closeness"][0]
        # Weights in the log odds of an answer: the sentences, and both cosines.
        self._shares = stored["shares"]
        self.cosine_weight = float(self._shares[2])
        self._outputs, self._biases = stored["outputs.weight"], stored["outputs.bias"]
        joined = int(read_metadata(path)["layers"])
        self._lower = config.layers - joined
        upper = {name: each for name, each in weights.items() if not name.startswith("blocks.")}
        for layer in range(joined):
            here, there = f"blocks.{layer}.", f"blocks.{self._lower + layer}."
            changes = {
                name.removeprefix(there).removesuffix(".a"): stored[f"{name[:-1]}b"] @ array
                for name, array in stored.items()
                if name.startswith(there) and name.endswith(".a")
            }
            parts = np.split(changes.pop("attention.qkv"), 3)
            for part, change in zip(("query", "key", "value"), parts, strict=True):
                changes[f"attention.{part}"] = change
            for name, array in weights.items():
                if name.startswith(there):
                    part = name.removeprefix(there)
                    change = changes.get(part.removesuffix(".weight"))
                    upper[here + part] = array if change is None else array + change
        self._upper = bert_of(replace(config, layers=joined), upper, "cls")

    def read(self, question: str, windows: Sequence[Window]) -> list[Reading]:
        """Return how far each window answers the question."""
        texts = [f"{each.head}\n{each.text}" if each.head else each.text for each in windows]
        data = [each.encode("utf-8", "replace").decode() for each in (question, *texts)]
        asked, *read = self._tokenizer.encode_batch(data)
        states = self._states(asked, MAX_QUESTION)

        def one(window: Window, encoding: "Encoding") -> Reading:
            passage = self._states(encoding, MAX_PASSAGE) + self._passage_type
            joined = self._upper.run(np.concatenate([states, passage]))
            mean, tokens = joined[: len(states)].mean(0), joined[len(states) :]
            shift = len(window.head) + 1 if window.head else 0
            begins = np.array([begin for begin, _ in encoding.offsets[: len(passage)]]) - shift
            of_sentences = [tokens[(a <= begins) & (begins < b)] for a, b in window.sentences]
            scores = tuple(
                self._sentence(each.mean(0), mean) if len(each) else -np.inf
                for each in of_sentences
            )
            # If everything was cut, the last token stands for the text.
            is_cut = not any(map(len, of_sentences))
            best = np.logaddexp.reduce([self._sentence(tokens[-1], mean)] if is_cut else scores)
            answers = joined[0] @ self._outputs[0] + self._biases[0]
            answers += self._shares[:2] @ (best, _cosine(mean, tokens.mean(0)))
            return Reading(float(answers), scores)

        with ThreadPoolExecutor(usable_cores()) as threads:
            return list(threads.map(one, windows, read))

    def _sentence(self, mean: Floats, question: Floats) -> float:
        odds = mean @ self._outputs[1] + self._biases[1] + self._closeness * _cosine(mean, question)
        return float(odds)

    def _states(self, encoding: "Encoding", most: int) -> Floats:
        ids = encoding.ids
        if len(ids) > most:
            ids = [*ids[: most - 1], ids[-1]]
        return self._encoder.states(ids, self._lower)


def _cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))
