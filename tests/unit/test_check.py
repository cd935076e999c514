"""A draft is checked against the author's posts and other people today."""

import json
import lzma
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from growth import is_far_from_quadratic
from ownwords.archive.corpus import TrainingText, load_corpus
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.cli.main import main
from ownwords.core.errors import CorpusError, OwnwordsError
from ownwords.drafts.check import AuthorStyle, check_view, verdict
from ownwords.drafts.rewriting import Habits
from ownwords.drafts.voice_card import voice_card
from ownwords.evaluation.style import MachineJudge, Normal, ReferenceAuthors, StyleVocabulary
from ownwords.view import blocks as b

ROOT = Path(__file__).resolve().parents[2]
BLOG = ROOT / "examples" / "blog"
MACHINES = ROOT / "base" / "machines" / "paragraphs.jsonl.xz"
MODERN = (
    "We leverage the new API to streamline deployment. You can install the package prior to that,"
    " then configure your environment variables. If you have any questions, please open an issue."
)


@pytest.mark.shared
def test_a_draft_is_placed_marked_and_found_in_the_posts(
    columnist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "w.ownwords"
    look([columnist], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as archive:
        corpus = load_corpus(archive)
    held_out = next(iter(corpus.test))
    draft = tmp_path / "draft.txt"
    first, *rest = held_out.text.split("\n\n")[1:4]
    draft.write_text("\n\n".join([first, MODERN, *rest]), encoding="utf-8")
    capsys.readouterr()
    assert main(["check", str(draft), "--workspace", str(workspace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    foreign = [each for each in found["sentences"] if each["text"] in MODERN]
    assert len(foreign) == 3
    assert sum(each["is_marked"] for each in foreign) >= 2
    assert any("“before” rather than “prior to”" in reason for reason in foreign[1]["because"])
    whole = draft.read_text(encoding="utf-8")
    assert all(whole[each["start"] : each["end"]] == each["text"] for each in foreign)
    assert found["others"]["middle"] < 0.1 < 0.9 < found["own"]["middle"]
    assert held_out.title in {each["title"] for each in found["written_before"]}
    assert main(["check", str(draft), "--workspace", str(workspace)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "You wrote this before" in out
    assert found["machine"] < 0.5


def test_what_language_models_write_is_called_so(gardener: AuthorStyle) -> None:
    usual = Normal(-0.16, 0.004, 1.1)  # of three bloggers
    assert gardener._prose
    learned = replace(gardener._learned, machines=MachineJudge(usual, gardener._prose.unseen))
    blogger = AuthorStyle(learned, gardener._arrays, dict)
    with lzma.open(MACHINES, "rt", encoding="utf-8") as file:
        written = [json.loads(line) for line in file][:: len(MACHINES.name)]
    manners = [each for each in written if each["manner"] not in ("clarity", "formal")]
    found = [blogger.check(each["text"]) for each in manners]
    called = [each for each in found if "a language model" in each.sentence]
    assert len(called) > 0.6 * len(found) > 30
    marked = [each for draft in called for each in draft.sentences if each.is_marked]
    assert len(marked) > 2 * len(called)
    assert all(each.because for each in marked)


def test_of_posts_that_read_like_a_language_model_nothing_is_claimed(
    tmp_path: Path, others: ReferenceAuthors
) -> None:
    look([BLOG], workspace=tmp_path / "w.ownwords")  # which one has written
    with Archive(tmp_path / "w.ownwords" / "archive.sqlite") as archive:
        posts = list(load_corpus(archive).train)
    found = AuthorStyle.learn(posts, others).check(posts[0].text)
    assert found.machine is None
    gauges = [each for each in check_view(found) if isinstance(each, b.Gauges)]
    assert len(gauges) == 1  # against other people; none against language models


def test_too_few_posts_are_one_sentence() -> None:
    post = TrainingText("1", "The cat sat on the mat, and that was the end of it.", "The cat")
    with pytest.raises(CorpusError, match="too few"):
        AuthorStyle.learn([post], ReferenceAuthors.load())


@pytest.fixture(scope="module")
def others() -> ReferenceAuthors:
    """A sixth of the other authors: fewer are compared the sooner."""
    every = ReferenceAuthors.load()
    return replace(every, passages=every.passages[::6], source_of=every.source_of[::6])


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingText]:
    """Every other post of the sample blog is unseen: `posts[::2]`."""
    workspace = tmp_path_factory.mktemp("check") / "w.ownwords"
    look([BLOG], workspace=workspace)
    with Archive(workspace / "archive.sqlite") as archive:
        corpus = load_corpus(archive)
    every = [text for side in (corpus.train, corpus.validation, corpus.test) for text in side]
    return sorted(every, key=lambda post: post.id)


@pytest.fixture(scope="module")
def blogger(posts: list[TrainingText], others: ReferenceAuthors) -> AuthorStyle:
    return AuthorStyle.learn(posts[1::2], others)


def bodies(posts: Sequence[TrainingText]) -> list[str]:
    return [post.head_and_body[1] for post in posts]


def test_few_unseen_sentences_are_marked_and_half_of_the_passages_lie_above(
    posts: list[TrainingText], blogger: AuthorStyle
) -> None:
    found = [blogger.check(text) for text in bodies(posts[::4])]
    marked = [each.is_marked for check in found for each in check.sentences]
    assert len(marked) > 300
    assert 0.02 < np.mean(marked) < 0.14
    assert all(check.yours > 0.9 for check in found)
    foreign = blogger.check(f"{MODERN} {MODERN}")
    assert foreign.above < 0.1 < 0.4 < np.mean([check.above for check in found])


def test_a_mark_depends_on_its_own_sentence_alone(
    posts: list[TrainingText], blogger: AuthorStyle
) -> None:
    text = f"{MODERN} {bodies(posts[:1])[0]}"
    whole = {each.text: each for each in blogger.check(text).sentences}
    alone = [blogger.check(sentence).sentences[0] for sentence in whole]
    assert [each.is_marked for each in alone] == [each.is_marked for each in whole.values()]
    assert [each.because for each in alone] == [each.because for each in whole.values()]


@pytest.mark.parametrize(
    ("machine", "yours", "words"),
    [
        (0.9, 0.9, "more like a language model’s"),
        (0.7, 0.9, "too close to tell"),
        (0.2, 0.5, "too close to tell"),
        (0.2, 0.05, "more like what other people write"),
        (None, 0.9, "more like your posts"),
    ],
)
def test_around_the_border_the_verdict_is_too_close_to_tell(
    machine: float | None, yours: float, words: str
) -> None:
    assert words in verdict(yours, 0.5, machine)


@pytest.mark.parametrize("beside", [0, 14])
def test_an_archive_of_one_text_judges_as_that_of_many(
    posts: list[TrainingText], others: ReferenceAuthors, beside: int
) -> None:
    known = posts[1::2]
    novel = TrainingText("novel", "\n\n".join(bodies(known[beside:])))
    style = AuthorStyle.learn([novel, *known[:beside]], others)
    found = [style.check(text) for text in bodies(posts[::8])]
    assert all(check.yours > 0.9 and "more like your posts" in check.sentence for check in found)
    assert 0.3 < np.mean([check.above for check in found]) < 0.7
    foreign = style.check(f"{MODERN} {MODERN}")
    assert foreign.yours < 0.1 and "more like what other people write" in foreign.sentence


@pytest.fixture(scope="module")
def gardener(others: ReferenceAuthors) -> AuthorStyle:
    days = ("Monday", "Tuesday", "Friday", "Sunday")
    text = "On {} I went out to the garden, and the rain had bent every stem of the lupin. " * 5
    posts = [TrainingText(str(n), text.format(*[day] * 5), day) for n, day in enumerate(days * 6)]
    whole = [(post.text, False) for post in posts]
    return AuthorStyle.learn(
        posts, others, [*whole, ("The rest of a long post: it remains.", True)]
    )


def test_of_a_wrapped_markdown_draft_the_sentences_are_checked(gardener: AuthorStyle) -> None:
    plain = "On Monday I went out to the garden, and the rain had bent every stem of the lupin."
    wrapped = plain.replace("bent every", "bent\nevery")
    front = "---\ntags: ['xylem']\n---\n\n# The garden that I saw and that the rain had bent\n\n"
    rest = (
        "\n\n> A zyzzyva.\n\n```\nkiln\n```\n\n- The lupin of the garden in the rain, bent\n\nYes!"
    )
    linked = "It is [here](https://xylem.example/kiln)\nin the garden, and it is *bent*."
    draft = f"{front}{wrapped} {linked}{rest}"
    found = gardener.check(draft)
    texts = [wrapped, linked, "The lupin of the garden in the rain, bent"]
    assert [sentence.text for sentence in found.sentences] == texts
    assert all(draft[each.start : each.end] == each.text for each in found.sentences)
    assert not any("xylem" in why for each in found.sentences for why in each.because)
    assert found.sentences[0].yours == gardener.check(plain).sentences[0].yours
    titled = gardener.check(f"A title that is longer than eight words of a draft\n\n{plain}")
    assert [sentence.text for sentence in titled.sentences] == [plain]


def test_a_draft_without_long_sentences_has_no_verdict(gardener: AuthorStyle) -> None:
    short = gardener.check("The rain fell. The lupin bent.")
    assert "too short for a verdict" in short.sentence and not short.sentences
    assert not any("0 sentences" in str(block) for block in check_view(short))
    with pytest.raises(OwnwordsError, match="no prose"):
        gardener.check("# A title\n\n    code")


def test_what_is_counted_in_the_whole_draft_is_set_beside_the_posts(gardener: AuthorStyle) -> None:
    found = gardener.check("What is it? It is a lupin! Is it bent? It is; it was. " * 6)
    assert any(line.startswith("Question marks: 12; ") for line in found.counts)
    assert any("on average" in line for line in found.counts)


def test_a_long_run_of_spaces_is_read_once(others: ReferenceAuthors) -> None:
    def read(text: str) -> object:
        return others.vocabulary.pairs(text)

    assert is_far_from_quadratic(read, f"It is so.{' ' * 60_000}It is here.")


def test_what_was_learned_is_kept_until_the_posts_change(tmp_path: Path) -> None:
    look([BLOG], workspace=tmp_path / "w.ownwords")
    kept = tmp_path / "w.ownwords" / "style.npz"
    with Archive(tmp_path / "w.ownwords" / "archive.sqlite") as archive:
        draft = next(iter(load_corpus(archive).test)).text
        first = AuthorStyle.of(archive).check(draft)
        stored = kept.read_bytes()
        assert AuthorStyle.of(archive).check(draft) == first
        assert first.written_before
        kept.write_bytes(stored[:100])  # damaged: learned anew
        assert AuthorStyle.of(archive).check(draft) == first
        archive.set_meta("state", "another")
        AuthorStyle.of(archive)
    assert kept.read_bytes() != stored


LETTERS = "bdfgklmnprtvaeiou"
SPOKEN = {
    "de": (
        "Ich glaube, der Zug war wieder zu spät, aber das war mir egal.",
        "Man könnte also meinen, dass ich nie pünktlich bin; das stimmt ja auch.",
        "Wenn es regnet, gehe ich trotzdem gern ans Wasser und sehe den Booten zu.",
        "Das kann man so machen, wenn man die Zeit dafür hat.",
    ),
    "fr": (
        "Je crois que le train était encore en retard, mais ça m’était bien égal.",
        "On pourrait donc penser que je n’arrive jamais à l’heure ; c’est d’ailleurs vrai.",
        "Quand il pleut, j’aime quand même aller au bord de l’eau, et je regarde les bateaux.",
        "C’est ce qu’on peut faire, si on a le temps pour ça !",
    ),
    "es": (
        "Creo que el tren llegó tarde otra vez, pero la verdad es que me daba igual.",
        "¿Se podría pensar que nunca llego a la hora? Pues sí, y además es verdad.",
        "Cuando llueve me gusta ir al agua de todas formas, y miro los barcos un rato.",
        "Eso es lo que se puede hacer, si uno tiene tiempo para ello.",
    ),
}


@pytest.mark.parametrize("code", SPOKEN)
def test_a_draft_in_another_language_is_compared_with_people_of_that_language(
    tmp_path: Path, code: str
) -> None:
    rng, folder = random.Random(1), tmp_path / "blog"
    folder.mkdir()

    def varied(sentence: str) -> str:  # so that no post is a copy of another
        return re.sub(
            r"(\w+ \w+ \w+)(?= )", lambda m: f"{m[0]} {''.join(rng.sample(LETTERS, 5))}", sentence
        )

    for n in range(14):
        paragraphs = (rng.choices(SPOKEN[code], k=4) for _ in range(6))
        text = "\n\n".join(" ".join(map(varied, each)) for each in paragraphs)
        (folder / f"{n}.md").write_text(f"# {SPOKEN[code][0][:9]} {n}\n\n{text}\n", "utf-8")
    english = "It was late, and the boats that I know were all in the harbour by then. " * 12
    (folder / "english.md").write_text(f"# A late boat\n\n{english}", "utf-8")
    look([folder], workspace=tmp_path / "w.ownwords")
    with Archive(tmp_path / "w.ownwords" / "archive.sqlite") as archive:
        style = AuthorStyle.of(archive)
        card = voice_card(archive)
    own = style.check(" ".join(SPOKEN[code]))
    assert own.language == code and own.other_posts == 1
    assert own.yours > 0.5 and own.machine is None
    assert not any("Only" in label for label in own.counts)
    foreign = style.check(english)
    assert not foreign.is_long_enough and not foreign.sentences
    assert "not in the language of your posts" in foreign.sentence
    others = ReferenceAuthors.load(code=code)
    assert max(style.yours(style._model.weights(each)) for each in others.passages[::40]) < 0.5
    shown = str(check_view(own))
    assert "in English only: the verdict is about other people" in shown
    assert "those in other languages are left out" in shown
    assert "Contractions" not in card.text and "Spelling" not in card.text
    assert not re.search("“(?:I|you|but|However)”", card.text)


def test_light_edits_of_english_words_are_not_offered_in_german() -> None:
    german = " ".join(SPOKEN["de"])
    draft = "Das Meeting ist in order to colour – und do not panic - so weiter …"
    kinds = {edit.kind for edit in Habits([german] * 300, "de").edits(draft)}
    assert kinds <= {"apostrophes", "dashes", "ellipses"}


def test_german_nouns_are_no_names_and_short_french_words_are_words() -> None:
    german = StyleVocabulary(["die", "der"], "de")
    shown = [
        german.shown(token.number) for token in german.tokens("Er las die Zeitung der Freiheit")
    ]
    assert shown[3] == "…ung" and shown[5] == "…heit"
    french = StyleVocabulary(["l'", "qu'", "aujourd'hui"], "fr")
    text = "Ce qu’il dit de l’eau « aujourd’hui » !"
    shown = [french.shown(token.number) for token in french.tokens(text)]
    assert {"qu'", "l'", "«", "aujourd'hui", "»", "!"} <= set(shown)
    spanish = StyleVocabulary(["que"], "es")
    assert spanish.shown(next(spanish.tokens("¿Que?")).number) == "¿"
