"""Count the reference that texts are compared with: words, and how others write.

    python base/reference.py books-1.txt.xz books-2.txt.xz --modern modern-1.txt.xz
    python base/reference.py --language de --modern german.txt.xz

Each file holds documents that begin with the character U+001C and, on a line, their name:
"Author/Title.md" or "source/number"; "peps/...rst" are Python Enhancement Proposals. Writes two
files of figures, without any text: `en_words.txt.xz` in src/ownwords/language has the words in the
books, and `voices.npz.xz` in src/ownwords/evaluation/reference has how people write today.
"""

import argparse
import io
import lzma
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.style import (
    LENGTHS,
    UNIT,
    Pairs,
    ReferenceAuthors,
    StyleVocabulary,
    reference_file,
)
from ownwords.language.words import FOLDER, WORDS_FILE, Lexicon, folded, language, words_in

OUT = Path(__file__).resolve().parents[1] / "src" / "ownwords" / "evaluation" / "reference"
DIVIDER = "\x1c"

# A word counts if several people have written it, so it is no typing error or one author's dialect.
# Short words need more authors, because two or three letters can abbreviate anything. Proposals
# need more, too: one author writes several, and they name things that are no words.
MIN_AUTHORS, MIN_OF_FOUR_LETTERS, MIN_OF_FEWER, MIN_PROPOSALS = 3, 6, 12, 4

VOCABULARY = 2000  # words, those in the most sources; with more, topics would matter
FREQUENT = 400  # of them are used to detect the language of a text
PASSAGES, MIN_PASSAGES = 20, 3  # of a source

_PARTED = re.compile(r"\w+-\s+\w+|-\w+")
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)?"


def main() -> int:
    """Read the books and the modern texts, count, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("books", nargs="*", type=Path, help="without, the words stay as they are")
    parser.add_argument("--modern", nargs="+", type=Path, required=True)
    parser.add_argument("--language", default="en", help="of the modern texts")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    texts: dict[str, list[str]] = defaultdict(list)
    for path in args.modern:
        for name, text in documents(path):
            texts[name.partition("/")[0]].append(text)
    authors = modern_authors(texts, VOCABULARY, args.language)
    path = save_authors(authors, args.out)
    print(f"{len(authors.sources)} sources, {len(authors.passages):,} passages")
    print(f"{path}: {path.stat().st_size:,} bytes")
    if not args.books:
        return 0
    counted = ReadCounts()
    for path in args.books:
        for name, text in documents(path):
            counted.add(name, text)
        print(f"{path.name}: {counted.documents} documents read")
    frequent = authors.vocabulary.words[:FREQUENT]
    lexicon = Lexicon(counted.common().union(frequent), frequent)
    path = save_lexicon(lexicon, FOLDER if args.out == OUT else args.out)
    print(f"{len(lexicon.words):,} words\n{path}: {path.stat().st_size:,} bytes")
    return 0


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each document in a file, one in memory at a time."""
    name, lines = "", list[str]()
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            if not line.startswith(DIVIDER):
                lines.append(line)
                continue
            if name:
                yield name, "".join(lines)
            name, lines = line[1:].strip(), []
    if name:
        yield name, "".join(lines)


@dataclass
class ReadCounts:
    """Counts that are collected while documents are read."""

    documents: int = 0
    _authors: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _proposals: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, text: str) -> None:
        """Count a document's words."""
        self.documents += 1
        author, _, _ = name.partition("/")
        if author == "peps":
            prose = proposal_prose(text)
            self._proposals.update({folded(word[0]) for word in words_in(prose)})
            return
        # Half of a word that was hyphenated at the end of a line is no word.
        cleaned = _PARTED.sub(" ", text)
        for word in {folded(word[0]) for word in words_in(cleaned)}:
            self._authors[word].add(author)

    def common(self) -> frozenset[str]:
        """Return the words of the lexicon."""
        thresholds = {
            1: MIN_OF_FEWER,
            2: MIN_OF_FEWER,
            3: MIN_OF_FEWER,
            4: MIN_OF_FOUR_LETTERS,
        }
        books = {
            word
            for word, authors in self._authors.items()
            if len(authors) >= thresholds.get(len(word), MIN_AUTHORS) and not word.endswith("'s")
        }
        modern = {word for word, n in self._proposals.items() if n >= MIN_PROPOSALS}
        return frozenset(books | modern) - {""}


def proposal_prose(text: str) -> str:
    """Return the prose of a proposal, without header, code, tables, references and copyright."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text)[1:]:
        lines = block.strip("\n").split("\n")
        is_prose = lines[0][:1].isalpha() and not any(line.startswith(" ") for line in lines)
        joined = re.sub(r"`([^`<]*?)\s*<[^>`]*>`__?", r"\1", " ".join(lines))
        joined = re.sub(r"``[^`]*``|:\w+:`[^`]*`|\[\w+\]_|`", "", joined)
        if is_prose and len(joined.split()) >= 8 and "placed in the public domain" not in joined:
            paragraphs.append(joined)
    return "\n\n".join(paragraphs)


def modern_authors(
    texts: Mapping[str, Sequence[str]], words: int, code: str = "en"
) -> ReferenceAuthors:
    """Count passages of each source, from as many of its documents as possible."""
    word_pattern = re.compile(language(code)["style"].get("short_forms", "") + _WORD)
    spread: Counter[str] = Counter()
    often: Counter[str] = Counter()
    for documents_of in texts.values():
        counts: Counter[str] = Counter()
        for text in documents_of:
            counts.update(word.lower().replace("’", "'") for word in word_pattern.findall(text))
        spread.update(counts.keys())
        total = counts.total()
        often.update({word: n / total for word, n in counts.items()})  # type: ignore[arg-type]
    ranked = sorted(spread, key=lambda word: (-spread[word], -often[word], word))
    vocabulary = StyleVocabulary(ranked[:words], code)
    sources: list[str] = []
    passages: list[Pairs] = []
    source_of: list[int] = []
    for source, documents_of in sorted(texts.items()):
        cut_documents = [cut(text, vocabulary) for text in evenly(documents_of, 3 * PASSAGES)]
        found = in_turn(cut_documents)[:PASSAGES]
        if len(found) >= MIN_PASSAGES:
            source_of += [len(sources)] * len(found)
            sources.append(source)
            passages += found
    return ReferenceAuthors(vocabulary, tuple(sources), tuple(passages), tuple(source_of))


def cut(text: str, vocabulary: StyleVocabulary) -> list[Pairs]:
    """Return a document's passages, each as sorted units: the order of its words is not kept."""
    length = LENGTHS[0]
    pairs = vocabulary.pairs(text)
    rows = pairs[: len(pairs) // length * length].reshape(-1, length // UNIT, UNIT)
    return [row.ravel() for row in np.sort(rows, axis=2)]


def evenly(texts: Sequence[str], limit: int) -> list[str]:
    """Return at most `limit` texts, evenly spaced."""
    chosen = sorted({i * len(texts) // limit for i in range(limit)})
    return [texts[i] for i in chosen]


def in_turn(documents_of: Sequence[Sequence[Pairs]]) -> list[Pairs]:
    """Return the first passage of each document, then the second of each, and so on."""
    longest = max(map(len, documents_of), default=0)
    return [cut_[i] for i in range(longest) for cut_ in documents_of if i < len(cut_)]


def save_authors(authors: ReferenceAuthors, folder: Path) -> Path:
    """Write the authors into a folder; return the path of the file."""
    pairs = np.concatenate(authors.passages).reshape(-1, UNIT)
    file = io.BytesIO()
    np.savez(
        file,
        # The differences between pairs compress better than the pairs.
        steps=np.diff(pairs, axis=1, prepend=np.uint32(0)),
        source_of=np.array(authors.source_of, np.uint16),
        sources=np.frombuffer("\n".join(authors.sources).encode(), np.uint8),
        vocabulary=np.frombuffer("\n".join(authors.vocabulary.words).encode(), np.uint8),
    )
    path = folder / reference_file("voices", authors.vocabulary.code)
    write_atomically(path, lzma.compress(file.getvalue(), preset=9))
    return path


def save_lexicon(lexicon: Lexicon, folder: Path) -> Path:
    """Write the words into a folder, one per line: frequent ones, a blank line, the rest."""
    others = sorted(lexicon.words - set(lexicon.frequent))
    lines = "\n".join([*lexicon.frequent, "", *others])
    packed = lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)
    write_atomically(folder / WORDS_FILE, packed)
    return folder / WORDS_FILE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OwnwordsError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
