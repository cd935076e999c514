"""Count words and styles in books: what samples are compared with, as figures and never as text.

    python base/reference.py books-1.txt.xz books-2.txt.xz

Each file holds documents that begin with the character U+001C and, on a line, their name:
"Author/Title.md", or "peps/...rst" for the proposals of the Python community, the only modern
prose in them. Two files are written into src/ownwords/evaluation/reference: `words.txt.xz`, the
words there are, and `voices.npz.xz`, how other authors write.
"""

import argparse
import io
import lzma
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ownwords.core.errors import OwnwordsError
from ownwords.core.text import count_words
from ownwords.core.workspace import write_atomically
from ownwords.evaluation.passages import passages, plain
from ownwords.evaluation.reference_data import (
    AUTHORS_FILE,
    WORDS_FILE,
    FeatureCounts,
    FeatureVocabulary,
    Lexicon,
    ReferenceAuthors,
    folded,
    words_in,
)

OUT = Path(__file__).resolve().parents[1] / "src" / "ownwords" / "evaluation" / "reference"
DIVIDER = "\x1c"

# A word is one if several people have written it: no slip of the pen, no one author's dialect. Few
# letters need more of them, for two or three stand for anything. Of proposals several are by one
# author, and they name things that are no words.
MIN_AUTHORS, MIN_OF_FOUR_LETTERS, MIN_OF_FEWER, MIN_PROPOSALS = 3, 6, 12, 4

UNIT_WORDS, STRETCH = 250, 4  # passages of 250, 500 and 1,000 words
STRETCHES = 5  # of each author: 5,000 words
VOCABULARY = 400  # the most frequent words of all authors together
LETTERS = 2048  # buckets
PROPOSERS = 8  # the most productive authors of proposals

# Those who wrote English prose: what is translated has another's style. Essayists, travellers and
# reformers first, for most blogs are nearer to them than to a novel.
AUTHORS = """
Adam Smith; Agatha Christie; Aldous Huxley; Anthony Trollope; Apsley Cherry-Garrard;
Arthur Conan Doyle; Benjamin Franklin; Booker T. Washington; Charles Darwin; Charles Dickens;
Charles Fort; Charles W. Chesnutt; Charlotte Bronte; Charlotte Perkins Gilman; Christopher Morley;
D.H. Lawrence; David Hume; E.M. Forster; Edgar Allan Poe; Edith Wharton; Emma Goldman;
Ernest Shackleton; F. Scott Fitzgerald; Ford Madox Ford; Francis Parkman; Frederick Douglass;
George Eliot; H.G. Wells; H.P. Lovecraft; Henry Adams; Henry James; Henry Morton Stanley;
Herman Melville; J. M. Barrie; Jack London; Jane Addams; Jane Austen; John Dos Passos; John Reed;
John Ruskin; John Stuart Mill; Joseph Conrad; Kenneth Grahame; Lafcadio Hearn; Margaret Sanger;
Mark Twain; Mary Kingsley; Mary Wollstonecraft; Nathaniel Hawthorne; Nellie Bly; Okakura Kakuzo;
Oscar Wilde; P.G. Wodehouse; Rebecca West; Richard Jefferies; Robert Louis Stevenson;
Rudyard Kipling; Samuel Butler; Sherwood Anderson; Sinclair Lewis; Stephen Crane;
Thomas De Quincey; Thomas Hardy; Thomas Paine; Ulysses S. Grant; Upton Sinclair; Virginia Woolf;
W.E.B. Du Bois.; W.H. Hudson; Washington Irving; Willa Cather; William Makepeace Thackeray
"""


_PARTED = re.compile(r"\w+-\s+\w+|-\w+")


def main() -> int:
    """Read the books, count, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("books", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    counted = ReadCounts()
    for path in args.books:
        for name, text in documents(path):
            counted.add(name, text)
        print(f"{path.name}: {counted.documents} documents read")
    stretches = counted.stretches()
    vocabulary = FeatureVocabulary(frequent(stretches), LETTERS)
    lexicon = Lexicon(counted.common().union(vocabulary.words), vocabulary.words)
    authors = count_authors(stretches, vocabulary, unit_words=UNIT_WORDS, stretch=STRETCH)
    for path in (save_lexicon(lexicon, args.out), save_authors(authors, args.out)):
        print(f"{path}: {path.stat().st_size:,} bytes")
    print(
        f"{len(lexicon.words):,} words; {len(authors.authors)} authors:"
        f" {'; '.join(authors.authors)}"
    )
    return 0


def documents(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the text of each document in a file, one in memory at a time."""
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
    """Counts that are collected while the documents are read."""

    documents: int = 0
    _authors: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _proposals: Counter[str] = field(default_factory=Counter)
    _books: dict[str, list[list[str]]] = field(default_factory=lambda: defaultdict(list))
    _proposed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, name: str, text: str) -> None:
        """Count a document's words, and collect the style features of its prose."""
        self.documents += 1
        author, _, _ = name.partition("/")
        if author == "peps":
            prose = proposal_prose(text)
            self._proposals.update({folded(word[0]) for word in words_in(prose)})
            writer = re.search(
                r"^Author: *([^<,\n]+?) *(?:<[^>\n]*>)?$(?!\n +\S)", text, re.MULTILINE
            )
            if writer and count_words(prose) >= UNIT_WORDS * STRETCH:
                self._proposed[writer[1]] += cut(prose, 1)
            return
        # Half of a word that was parted at the end of a line is none.
        cleaned = _PARTED.sub(" ", text)
        for word in {folded(word[0]) for word in words_in(cleaned)}:
            self._authors[word].add(author)
        if author in _names(AUTHORS):
            self._books[author].append(cut(book_prose(text), STRETCHES))

    def common(self) -> frozenset[str]:
        """The words of the lexicon."""
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

    def stretches(self) -> dict[str, list[str]]:
        """Some stretches of each author, from as many different books as possible."""
        by_author = {author: in_turn(books)[:STRETCHES] for author, books in self._books.items()}
        ranked = sorted(self._proposed, key=lambda writer: (-len(self._proposed[writer]), writer))
        for number, writer in enumerate(ranked[:PROPOSERS], start=1):
            by_author[f"Author {number} of Python proposals"] = self._proposed[writer][:STRETCHES]
        return {
            author: texts for author, texts in sorted(by_author.items()) if len(texts) == STRETCHES
        }


def _names(listed: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in listed.split(";"))


def book_prose(text: str) -> str:
    """A book without headings, contents, verse, and front and back matter."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
    paragraphs = [
        paragraph
        for paragraph in paragraphs
        if len(paragraph) > 60 and not paragraph.startswith(("#", ">", "|"))
    ]
    edge = len(paragraphs) // 20
    return "\n\n".join(paragraphs[edge : len(paragraphs) - edge])


def proposal_prose(text: str) -> str:
    """The prose of a proposal, without its header, code, tables, references and copyright."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text)[1:]:
        lines = block.strip("\n").split("\n")
        is_prose = lines[0][:1].isalpha() and not any(line.startswith(" ") for line in lines)
        joined = re.sub(r"`([^`<]*?)\s*<[^>`]*>`__?", r"\1", " ".join(lines))
        joined = re.sub(r"``[^`]*``|:\w+:`[^`]*`|\[\w+\]_|`", "", joined)
        if is_prose and len(joined.split()) >= 8 and "placed in the public domain" not in joined:
            paragraphs.append(joined)
    return "\n\n".join(paragraphs)


def cut(prose: str, most: int) -> list[str]:
    """Stretches of a text, as far apart as possible."""
    words = prose.split(" ")
    # Some more words than are counted: a word of ours may be two between spaces, or none.
    size = round(1.2 * UNIT_WORDS * STRETCH)
    places = len(words) // size
    chosen = [i * places // min(most, places) for i in range(min(most, places))]
    return [" ".join(words[i * size : (i + 1) * size]) for i in chosen]


def in_turn(books: Sequence[Sequence[str]]) -> list[str]:
    """The first stretch of each book, the second of each, and so on."""
    longest = max(map(len, books), default=0)
    return [book[i] for i in range(longest) for book in books if i < len(book)]


def frequent(stretches: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The words most frequent across all authors, most frequent first."""
    rates: Counter[str] = Counter()
    for texts in stretches.values():
        words = [
            word for text in texts for word in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", plain(text))
        ]
        for word, n in Counter(words).items():
            rates[word] += n / len(words)  # type: ignore[assignment]
    return tuple(word for word, _ in rates.most_common(VOCABULARY))


def count_authors(
    stretches: Mapping[str, Sequence[str]],
    vocabulary: FeatureVocabulary,
    *,
    unit_words: int,
    stretch: int,
) -> ReferenceAuthors:
    """Count the first `stretch` units of each author's texts; shorter texts are left out."""
    authors: list[str] = []
    author_of: list[int] = []
    rows: list[FeatureCounts] = []
    for author, texts in stretches.items():
        units = [passages([text], unit_words)[:stretch] for text in texts]
        counts = [vocabulary.count(unit) for unit in units if len(unit) == stretch]
        if counts:
            author_of += [len(authors)] * len(counts)
            authors.append(author)
            rows += counts
    counts, ngrams = (
        np.minimum(np.concatenate(kind), 255).astype(np.uint8)
        for kind in ([row.words for row in rows], [row.ngrams for row in rows])
    )
    of = np.array(author_of, np.uint16)
    return ReferenceAuthors(vocabulary, tuple(authors), unit_words, stretch, counts, ngrams, of)


def save_authors(authors: ReferenceAuthors, folder: Path) -> Path:
    """Write the compressed file into a folder and return its path."""
    file = io.BytesIO()
    np.savez(
        file,
        # Column-major order compresses better: the counts of a column are similar.
        words=np.asfortranarray(authors.unit_counts),
        letters=np.asfortranarray(authors.unit_ngrams),
        author_of=authors.author_of,
        unit_words=np.array([authors.unit_words], np.uint32),
        authors=np.frombuffer("\n".join(authors.authors).encode(), np.uint8),
        vocabulary=np.frombuffer("\n".join(authors.vocabulary.words).encode(), np.uint8),
    )
    write_atomically(folder / AUTHORS_FILE, lzma.compress(file.getvalue()))
    return folder / AUTHORS_FILE


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
