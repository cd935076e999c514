"""Train the reader of `ask`: a LoRA with which MiniLM reads a question and a passage together.

    python base/reader.py prepare --modern FILE --folder FOLDER
    python base/reader.py train --folder FOLDER --minutes 21       in two processes
    python base/reader.py publish --folder FOLDER                  into the package

The questions are in `questions/`. `prepare` cuts, indexes and searches the documents of each source
like an archive. From the windows that a question finds, each pass shows the one with its passage,
sometimes also that window without the answering sentences, and one of the others.
"""

import argparse
import json
import lzma
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, distributed, nn
from torch.nn import functional

import texts
from ownwords.archive.document import Document, Segment
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.store import Archive
from ownwords.ask.encoder import KNOWN, SentenceModel, embed_missing, installed
from ownwords.ask.index import SearchIndex
from ownwords.ask.passages import window_spans
from ownwords.ask.reader import MAX_PASSAGE, MAX_QUESTION, PACKAGED
from ownwords.ask.search import ArchiveSearcher, window_of
from ownwords.models.bert import load_weights
from ownwords.models.safetensors_header import write_file

QUESTIONS = Path(__file__).with_name("questions")
RANK, ALPHA, RATE = 32, 64.0, 1e-3
SIZE = 10  # questions of a step, in each process
JOINED = 2  # upper layers read question and passage together; those below read each alone
MOST_CHARACTERS = 45_000  # of a source's archive
_ENDS = re.compile(r"[.!?:;,][\"”)]*$")
HELD_OUT = frozenset(
    [
        "burntsushi",
        "choldgraf",
        "cloudgov",
        "dblock",
        "gds_service_manual",
        "kbroman",
        "openscapes_blog",
        "openstax_astronomy",
        "openstax_psychology",
        "rust_blog",
        "todogroup",
        "vbuterin_blog",
    ]
)


class Reader(nn.Module):
    """The upper layers of MiniLM with a LoRA, and two outputs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.config, weights = load_weights(folder)
        self.fixed = {name: torch.from_numpy(np.array(each)) for name, each in weights.items()}
        for layer in range(self.config.layers):  # queries, keys and values as one matrix
            for kind in ("weight", "bias"):
                parts = [f"blocks.{layer}.attention.{x}.{kind}" for x in ("query", "key", "value")]
                name = f"blocks.{layer}.attention.qkv.{kind}"
                self.fixed[name] = torch.cat([self.fixed[part] for part in parts])
        width = self.config.width
        self.passage_type = nn.Parameter(torch.zeros(width))
        self.lora = nn.ParameterDict()
        for layer in range(self.config.layers - JOINED, self.config.layers):
            for part in ("attention.qkv", "attention.output", "mlp.up", "mlp.down"):
                outputs, inputs = self.fixed[f"blocks.{layer}.{part}.weight"].shape
                name = f"{layer}.{part}".replace(".", "_")
                self.lora[f"{name}_a"] = nn.Parameter(torch.randn(RANK, inputs) / inputs**0.5)
                self.lora[f"{name}_b"] = nn.Parameter(torch.zeros(outputs, RANK))
        self.answer = nn.Linear(width, 1)
        self.sentence = nn.Linear(width, 1)
        # Weights in the answer's logit: sentences, cosine of encoder vectors, cosine of means.
        self.shares = nn.Parameter(torch.tensor([0.5, 4.0, 0.5]))
        self.closeness = nn.Parameter(torch.tensor(11.0))  # weight of closeness in a sentence logit
        nn.init.zeros_(self.answer.weight)
        nn.init.zeros_(self.sentence.weight)
        nn.init.constant_(self.answer.bias, -1.8)
        nn.init.constant_(self.sentence.bias, -10.0)

    def linear(self, x: Tensor, layer: int, part: str) -> Tensor:
        name, key = f"blocks.{layer}.{part}", f"{layer}.{part}".replace(".", "_")
        y = functional.linear(x, self.fixed[f"{name}.weight"], self.fixed[f"{name}.bias"])
        if f"{key}_a" not in self.lora:
            return y
        low = functional.linear(x, self.lora[f"{key}_a"]) * (ALPHA / RANK)
        return torch.addmm(y, low, self.lora[f"{key}_b"].T)

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.fixed[f"{name}.weight"], self.fixed[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, self.config.norm_eps)

    def layers(self, x: Tensor, mask: Tensor, first: int, last: int) -> Tensor:
        """Return the states [tokens, width] after some layers; the mask says where tokens are."""
        rows, most = mask.shape
        places = mask.flatten().nonzero()[:, 0]
        heads, width = self.config.heads, self.config.width
        for layer in range(first, last):
            qkv = x.new_zeros(rows * most, 3 * width)
            qkv = qkv.index_copy(0, places, self.linear(x, layer, "attention.qkv"))
            parts = (each.transpose(1, 2) for each in qkv.view(rows, most, 3, heads, -1).unbind(2))
            attended = functional.scaled_dot_product_attention(
                *parts, attn_mask=mask[:, None, None, :]
            )
            attended = attended.transpose(1, 2).reshape(rows * most, width)[places]
            name = f"blocks.{layer}"
            x = x + self.linear(attended, layer, "attention.output")
            x = self.norm(x, f"{name}.attention_norm")
            x = x + self.linear(functional.gelu(self.linear(x, layer, "mlp.up")), layer, "mlp.down")
            x = self.norm(x, f"{name}.mlp_norm")
        return x

    @torch.no_grad()
    def lower(self, texts: list[list[int]]) -> list[Tensor]:
        """Return the states of texts after the layers that read each alone."""
        lengths = torch.tensor([len(each) for each in texts])
        mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
        ids = torch.tensor([x for each in texts for x in each])
        at = torch.cat([torch.arange(len(each)) for each in texts])
        x = self.fixed["embedding.weight"][ids] + self.fixed["positions.weight"][at]
        x = self.norm(x + self.fixed["token_types.weight"][0], "embedding_norm")
        return list(self.layers(x, mask, 0, self.config.layers - JOINED).split(lengths.tolist()))

    def forward(self, pairs: list["Pair"]) -> tuple[Tensor, list[Tensor]]:
        """Return the logit of each pair, and the logits of its sentences."""
        parts = [part for each in pairs for part in (each.question, each.passage)]
        x = torch.cat(parts).float()
        is_passage = torch.cat(
            [torch.full((len(part), 1), float(n % 2)) for n, part in enumerate(parts)]
        )
        lengths = torch.tensor([len(each.question) + len(each.passage) for each in pairs])
        mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
        x = self.layers(
            x + is_passage * self.passage_type,
            mask,
            self.config.layers - JOINED,
            self.config.layers,
        )
        logits = self.answer(x[torch.cumsum(lengths, 0) - lengths])[:, 0]
        bounds = [n for each in pairs for n in (len(each.question), len(each.passage))]
        states = x.split(bounds)
        asked = torch.stack([each.mean(0) for each in states[::2]])
        read = torch.stack([each.mean(0) for each in states[1::2]])
        joined = functional.cosine_similarity(asked, read)
        apart = torch.tensor([each.cosine for each in pairs])
        counts = [each.count for each in pairs]
        begins = np.cumsum([0, *counts]).tolist()
        of = torch.cat(
            [
                torch.cat(
                    [torch.full((len(each.question),), -1), each.units + (each.units >= 0) * n]
                )
                for each, n in zip(pairs, begins, strict=False)
            ]
        )
        inside = of >= 0
        sums = x.new_zeros(begins[-1], x.shape[-1]).index_add(0, of[inside], x[inside])
        sizes = torch.bincount(of[inside], minlength=begins[-1]).clamp(min=1)
        means = sums / sizes[:, None]
        close = functional.cosine_similarity(
            means, asked.repeat_interleave(torch.tensor(counts), 0)
        )
        scores = self.sentence(means)[:, 0] + self.closeness * close
        sentences = list(scores.split(counts))
        best = torch.stack([each.logsumexp(0) for each in sentences])
        return logits + torch.stack([best, apart, joined], 1) @ self.shares, sentences


@dataclass
class Pair:
    """A question and a passage as states; `answers` are the sentences that answer, best first."""

    question: Tensor
    passage: Tensor
    units: Tensor  # of each token of the passage, its sentence, or -1
    count: int
    answers: list[int]
    cosine: float


class States:
    """The lower layers' outputs for texts, each computed once."""

    def __init__(self, folder: Path, model: Reader) -> None:
        self._model, self._states = model, dict[tuple[str, int], tuple[Tensor, list[Any]]]()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()

    def compute(self, texts: Sequence[tuple[str, int]]) -> None:
        """Compute the states of texts that are missing, cut at a number of tokens."""
        missing = sorted(
            {each for each in texts if each not in self._states}, key=lambda x: len(x[0])
        )
        for start in range(0, len(missing), 16):
            encoded = []
            for text, most in missing[start : start + 16]:
                self._tokenizer.enable_truncation(most)
                encoded.append(self._tokenizer.encode(text))
            states = self._model.lower([each.ids for each in encoded])
            for key, one, each in zip(missing[start : start + 16], encoded, states, strict=True):
                self._states[key] = each.half(), one.offsets

    def pair(self, question: str, candidate: dict[str, Any]) -> Pair:
        head, spans = candidate["head"], candidate["spans"]
        shift = len(head) + 1 if head else 0
        states, offsets = self._states[text_of(candidate), MAX_PASSAGE]
        units = [
            next(
                (n for n, (a, b) in enumerate(spans) if a <= begin - shift < b and end > begin), -1
            )
            for begin, end in offsets
        ]
        seen = max(units, default=-1) + 1
        if not seen:  # everything was cut: the last token stands for the text
            units[-1], seen = 0, 1
        answers = [n for n in candidate["y"] if n in units]
        asked = self._states[question, MAX_QUESTION][0]
        return Pair(asked, states, torch.tensor(units), seen, answers, candidate["cos"])


def text_of(candidate: dict[str, Any]) -> str:
    """Return the text of a candidate that the model reads."""
    head = candidate["head"]
    return f"{head}\n{candidate['text']}" if head else str(candidate["text"])


def loss_of(logits: Tensor, sentences: list[Tensor], groups: list[list[Pair]]) -> Tensor:
    """Return the loss of each pair, of a question's candidates against each other, of sentences."""
    pairs = [pair for group in groups for pair in group]
    right = torch.tensor([float(bool(pair.answers)) for pair in pairs])
    loss = functional.binary_cross_entropy_with_logits(logits, right)
    lists = []
    for part, wanted in zip(
        logits.split([len(group) for group in groups]),
        right.split([len(group) for group in groups]),
        strict=True,
    ):
        with_none = torch.cat([part.new_zeros(1), part])
        target = torch.cat([(wanted.sum() == 0).float()[None], wanted])
        lists.append(-(with_none.log_softmax(0) * target / target.sum()).sum())
    marks = []
    for pair, each in zip(pairs, sentences, strict=True):
        choice = torch.cat([each.new_zeros(1), each]).log_softmax(0)
        weights = [0.5**n for n in range(len(pair.answers))] or [1.0]
        places = [n + 1 for n in pair.answers] or [0]
        chosen = choice[torch.tensor(places)] @ torch.tensor(weights)
        marks.append(-chosen / sum(weights))
    return loss + 0.5 * torch.stack(lists).mean() + 0.5 * torch.stack(marks).mean()


def candidates(group: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    """Draw the candidates of a question for one pass."""
    own = group["c"][0]
    if not own["y"] and rng.random() < 0.8:  # or a question's style would reveal the answer
        return [own]
    chosen = [own]
    if group.get("cut") and rng.random() < 0.5:
        chosen.append(group["cut"] | {"cos": own["cos"] - 0.03})
    rest = group["other"]
    chosen += rng.sample(rest[:7], min(1, len(rest[:7])))
    return chosen


def batches(
    groups: list[dict[str, Any]], states: States, rng: random.Random
) -> Iterator[list[list[Pair]]]:
    """Yield one pass over the questions, those of about the same length together."""
    order = rng.sample(groups, len(groups))
    for start in range(0, len(order), 8 * SIZE):
        some = [(x["q"], candidates(x, rng)) for x in order[start : start + 8 * SIZE]]
        states.compute([(question, MAX_QUESTION) for question, _ in some])
        states.compute([(text_of(each), MAX_PASSAGE) for _, drawn in some for each in drawn])
        part = [[states.pair(question, each) for each in drawn] for question, drawn in some]
        part.sort(key=lambda group: max(len(pair.passage) for pair in group))
        chunks = [part[at : at + SIZE] for at in range(0, len(part), SIZE)]
        rng.shuffle(chunks)
        yield from chunks


# ---- examples


def prepare(options: argparse.Namespace) -> None:
    """Write the candidates of each question: `groups.jsonl`."""
    passages = {each["id"]: each for each in _lines("passages")}
    questions = defaultdict(list)
    for each in _lines("questions"):
        source = passages[each["passage"]]["document"].partition("/")[0]
        questions[source].append(each)
    by_source = defaultdict(dict)
    for name, text in texts.documents(options.modern):
        if (source := name.partition("/")[0]) in questions:
            by_source[source][name] = text
    encoder = SentenceModel(_minilm(), KNOWN[0])
    with (options.folder / "groups.jsonl").open("w", encoding="utf-8") as out:
        for source, documents in sorted(by_source.items()):
            needed = [p for p in passages.values() if p["document"] in documents]
            path = options.folder / f"{source}.sqlite"
            with closing(_archive(path, documents, needed, encoder)) as index:
                for each in questions[source]:
                    passage = passages[each["passage"]]
                    body = documents[passage["document"]][passage["offset"] :]
                    said = [_words(body[a:b]) for a, b in passage["sentences"]]
                    if group := _group(each, passage["document"], said, index, encoder):
                        out.write(json.dumps(group | {"source": source}) + "\n")


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with lzma.open(QUESTIONS / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _minilm() -> Path:
    folder = installed(KNOWN[0])
    if folder is None:
        raise SystemExit('install it first: ownwords ask --embed minilm "a question"')
    return folder


def _archive(
    path: Path, documents: dict[str, str], passages: list[dict[str, Any]], encoder: SentenceModel
) -> SearchIndex:
    """Index the documents of the passages, and others up to a size."""
    chosen: dict[str, str] = {}
    for passage in passages:  # of long documents, the text around the passages
        text, at = documents[passage["document"]], passage["offset"]
        begin = text.rfind("\n\n", 0, max(0, at - 3000)) + 1
        around = text[begin : text.find("\n\n", at + passage["length"] + 3000)]
        chosen[passage["document"]] = chosen.get(passage["document"], "") + around
    others = random.Random(path.stem).sample(sorted(documents), len(documents))
    for name in others:
        if sum(map(len, chosen.values())) > MOST_CHARACTERS:
            break
        chosen.setdefault(name, documents[name][:6000])
    with Archive(path) as archive, archive.transaction():
        for name, text in chosen.items():
            title, *paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
            segments = tuple(
                Segment("heading", part, "2")
                if len(part.split()) <= 8 and not _ENDS.search(part)
                else Segment("prose", part)
                for part in paragraphs
            )
            document = Document(name, title.lstrip("# "), segments)
            archive.put(document, name, encode_features(extract_features(document)))
    index = SearchIndex(path)
    index.refresh()
    embed_missing(index, encoder)
    return index


def _words(text: str) -> str:
    return " ".join(text.split())


def _group(
    question: dict[str, Any], document: str, said: list[str], index: SearchIndex,
    encoder: SentenceModel,
) -> dict[str, Any] | None:  # fmt: skip
    """Return a question's windows: its passage's, the same without the answer, the others."""
    searcher = ArchiveSearcher(index, encoder)
    found = searcher.find(question["question"], 12).passages
    own_ids = index.chunks(document)
    vector = encoder.embed([question["question"]])[0]
    stored = index.vectors(encoder.name)
    of_windows = stored.of_windows(vector)
    own, other = [], []
    for passage in index.passages(
        [*((id_, 0.0) for id_ in own_ids), *((p.id, 0.0) for p in found)]
    ):
        closest, cosine = stored.window(passage.id, of_windows)
        for number, span in enumerate(window_spans(passage.text)):
            window = window_of(passage, span)
            parts = [_words(window.text[a:b]) for a, b in window.sentences]
            spans = [list(each) for each in window.sentences]
            each = {
                "head": window.head,
                "text": window.text,
                "spans": spans,
                "cos": cosine,
                "y": [],
            }
            has = [[n for n, part in enumerate(parts) if x in part] for x in said]
            if passage.id in own_ids and any(has):
                each["y"] = list(dict.fromkeys(n for x in question["answers"] for n in has[x]))
                own.append(each)
            elif number == closest and passage.document != document:
                other.append(each)
    own.sort(key=lambda each: (not each["y"], -each["cos"]))
    if not own or (question["answers"] and not own[0]["y"]):
        return None
    group = {"q": question["question"], "k": question["kind"], "c": own[:1], "other": other}
    left = [n for n in range(len(own[0]["spans"])) if n not in own[0]["y"]]
    if own[0]["y"] and left:
        kept = [own[0]["text"][slice(*own[0]["spans"][n])] for n in left]
        ends = np.cumsum([len(part) + 1 for part in kept]).tolist()
        spans = [[end - len(part) - 1, end - 1] for part, end in zip(kept, ends, strict=True)]
        group["cut"] = {**own[0], "text": " ".join(kept), "spans": spans, "y": []}
    return group


# ---- training


def train(options: argparse.Namespace) -> None:
    """Train in two processes, each with its half of the questions; the first one saves."""
    if options.rank == 0:
        (options.folder / "meeting").unlink(missing_ok=True)
        command = [sys.executable, __file__, "train", "--folder", str(options.folder)]
        other = subprocess.Popen([*command, "--minutes", str(options.minutes), "--rank", "1"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    meeting = f"file://{(options.folder / 'meeting').resolve()}"
    distributed.init_process_group("gloo", init_method=meeting, rank=options.rank, world_size=2)
    model, rng = Reader(_minilm()), random.Random(1 + options.rank)
    states = States(_minilm(), model)
    lines = (options.folder / "groups.jsonl").read_text("utf-8").splitlines()
    groups = [each for each in map(json.loads, lines) if each["source"] not in HELD_OUT]
    few = [model.shares, model.closeness, model.answer.bias, model.sentence.bias]
    many = [each for each in model.parameters() if all(each is not x for x in few)]
    optimizer = torch.optim.AdamW(
        [{"params": many, "times": 1}, {"params": few, "times": 10}],
        betas=(0.9, 0.98),
        weight_decay=0.01,
    )
    began, step, share = time.monotonic(), 0, 0.0
    while share < 1:
        for chunk in batches(groups[options.rank :: 2], states, rng):
            pairs = [pair for group in chunk for pair in group]
            loss = loss_of(*model(pairs), chunk)
            optimizer.zero_grad()
            loss.backward()
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            spent = torch.tensor([(time.monotonic() - began) / (60 * options.minutes)])
            flat = torch.cat([*(each.flatten() for each in gradients), spent])
            distributed.all_reduce(flat)
            *parts, both = (flat / 2).split([*(each.numel() for each in gradients), 1])
            share = float(both)
            for each, part in zip(gradients, parts, strict=True):
                each.copy_(part.view_as(each))
            for group in optimizer.param_groups:
                rise, fall = (step + 1) / 40, 1.05 * max(0, 1 - share) + 0.02
                group["lr"] = group["times"] * RATE * min(1, rise, fall)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if options.rank == 0 and step % 20 == 0:
                print(f"{step} steps, {share:.0%}, loss {float(loss.detach()):.3f}", flush=True)
                torch.save(model.state_dict(), options.folder / "reader.pt")
            if share >= 1:
                break
    if options.rank == 0:
        torch.save(model.state_dict(), options.folder / "reader.pt")
        other.wait()


def publish(options: argparse.Namespace) -> None:
    """Write the package's reader: its tensors in half precision, the factor in the matrices."""
    state = torch.load(options.folder / "reader.pt", weights_only=True)
    best, apart, joined = state.pop("shares")
    tensors = {"shares": torch.stack([best, joined, apart]), "closeness": state["closeness"][None]}
    tensors["passage_type"] = state["passage_type"]
    for kind in ("weight", "bias"):
        parts = [state[f"{output}.{kind}"] for output in ("answer", "sentence")]
        tensors[f"outputs.{kind}"] = torch.cat(parts)
    for name, value in state.items():
        if name.startswith("lora."):
            layer, *part, side = name.removeprefix("lora.").split("_")
            factor = ALPHA / RANK if side == "b" else 1.0
            tensors[f"blocks.{layer}.{'.'.join(part)}.{side}"] = value * factor
    arrays = {name: value.half().numpy() for name, value in sorted(tensors.items())}
    metadata = {"encoder": SentenceModel(_minilm(), KNOWN[0]).digest, "layers": str(JOINED)}
    PACKAGED.unlink(missing_ok=True)
    entries = [(name, "F16", array.shape) for name, array in arrays.items()]
    write_file(PACKAGED, entries, (np.ascontiguousarray(x).data for x in arrays.values()), metadata)


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["prepare", "train", "publish"])
    parser.add_argument("--modern", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=21)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    {"prepare": prepare, "train": train, "publish": publish}[options.what](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
