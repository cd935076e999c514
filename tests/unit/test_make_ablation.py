"""With a dominant post, a second model shows what the decision about it was worth."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_make
from ownwords.archive.report import PostSummary, Report
from ownwords.archive.store import Archive
from ownwords.cli import score
from ownwords.core.workspace import Workspace
from ownwords.evaluation.scorecard import Dominant
from ownwords.evaluation.scorecard_view import effect_of_decision
from ownwords.make import dominant_post_ablation, pipeline
from ownwords.make.callbacks import MakeCallbacks
from ownwords.make.result import MakeResult, TrainingSummary
from ownwords.models.directory import PROVENANCE
from ownwords.models.untrusted_files import read_json
from ownwords.training import corpus, recipes

LONG = 12  # times the others' length


class Listener(MakeCallbacks):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_ablation_start(self, post: PostSummary, seconds: float) -> None:
        self.messages.append(f"weighs {post.decision}")

    def on_ablation_end(
        self, trained: TrainingSummary | None, why_not: str, seconds: float | None
    ) -> None:
        self.messages.append("weighed" if seconds else why_not or "was weighed")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny_make.skip_measurements(monkeypatch, tmp_path_factory.getbasetemp())


def long_post(blog: Path) -> None:
    """One post that is a third of the blog."""
    paragraphs = "\n\n".join(
        f"On day {n} the miller counted {n * 7} sacks, and of them {n * n} were the baker's; the"
        f" sailor, who had lent {n + 3} of the sacks, was told of it a year later."
        for n in range(8 * LONG)
    )
    (blog / "long.md").write_text(f"---\ntitle: All the sacks\n---\n\n{paragraphs}\n", "utf-8")


@pytest.fixture(scope="module")
def ablation_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, list[str], MakeResult]]:
    folder = tmp_path_factory.mktemp("ablation")
    with pytest.MonkeyPatch.context() as patch:
        tiny_make.skip_measurements(patch, tmp_path_factory.getbasetemp())
        tiny_make.write_blog(folder / "blog")
        long_post(folder / "blog")
        tiny_make.train_base(folder / "base")
        listener = Listener()
        result = pipeline.make(tiny_make.make_request(folder), callbacks=listener)
    yield folder, listener.messages, result


def dominant(result: MakeResult) -> Dominant:
    assert result.scorecard is not None
    assert result.scorecard.dominant is not None
    return result.scorecard.dominant


def test_the_card_has_figures_before_and_after(
    ablation_run: tuple[Path, list[str], MakeResult],
) -> None:
    _, messages, result = ablation_run
    assert messages[0].startswith("weighs ")
    assert messages[1:] == ["weighed"]
    ablation = dominant(result)
    assert ablation.title == "All the sacks"
    assert ablation.decision in ("cap", "leave out")
    before, after = ablation.rows
    assert before.words > after.words
    assert before.bits is not None
    assert after.bits is not None
    assert result.scorecard is not None
    assert result.scorecard.ours is not None
    assert after.bits == result.scorecard.ours.bits
    assert before.bits != after.bits
    assert "not measured" not in effect_of_decision(ablation)


def test_the_two_differ_in_that_post_alone(
    ablation_run: tuple[Path, list[str], MakeResult],
) -> None:
    folder, _, result = ablation_run
    workspace = folder / "w"
    ours, full_record = (
        read_json(path / PROVENANCE)
        for path in (workspace / "model", workspace / "runs" / "in-full" / "model")
    )
    assert ours["recipe"] == full_record["recipe"]
    assert ours["corpus"] == full_record["corpus"]
    post = dominant_post_ablation.dominant_post(result.report)
    assert post is not None
    with Archive(workspace / "archive.sqlite") as archive:
        texts = corpus.load_corpus(archive)
        all_texts = {
            text.id: text.text for text in dominant_post_ablation.with_all_of(post, texts.train)
        }
        parted = {text.id: text.text for text in texts.train}
    assert "On day 95 " in all_texts[post.id]
    assert "On day 95 " not in parted.pop(post.id, "")
    assert all_texts.keys() - {post.id} == parted.keys()


def test_a_second_time_nothing_is_trained(
    ablation_run: tuple[Path, list[str], MakeResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, before = ablation_run

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing was to be trained")

    monkeypatch.setattr(recipes, "plan_finetuning", never)
    monkeypatch.setattr(recipes, "plan_pretraining", never)
    listener = Listener()
    result = pipeline.make(tiny_make.make_request(folder), callbacks=listener)
    assert listener.messages == ["was weighed"]
    assert not result.is_new
    assert dominant(result) == dominant(before)


def test_score_reuses_the_ablation_of_the_same_model(
    ablation_run: tuple[Path, list[str], MakeResult], tmp_path: Path
) -> None:
    folder, _, result = ablation_run
    workspace = Workspace(folder / "w")
    with Archive(workspace.archive) as archive:
        key = corpus.load_corpus(archive).key
    full_model = workspace.runs / "in-full" / "model"
    models = score._comparison_models(result.model, str(folder / "base" / "model"), workspace, key)
    assert models.ablation == full_model
    assert score._comparison_models(result.model, "none", workspace, key).ablation == full_model
    assert score._comparison_models(result.model, "none", workspace, "other texts").ablation is None
    # The model from nothing was trained otherwise, so the one in full says nothing about it.
    nothing = workspace.runs / "from-nothing" / "model"
    assert score._comparison_models(nothing, "none", workspace, key).ablation is None


def report(*posts: PostSummary) -> Report:
    return Report(name="", fingerprint="", version="", created_on="", posts=list(posts))


def post(decision: str, words: int = 900, *flags: str) -> PostSummary:
    defaults = {"title": "", "url": "", "day": "", "kind": "post", "share": 0.5}
    return PostSummary(
        id=f"{decision}{words}",
        words=words,
        own_words=words,
        flags=list(flags),
        decision=decision,
        **defaults,  # type: ignore[arg-type]
    )


def test_a_post_that_is_learned_completely_is_not_ablated() -> None:
    kept_post, out = post("keep", 900, "dominant"), post("leave out", 800, "dominant")
    assert dominant_post_ablation.dominant_post(report(post("leave out"))) is None
    assert dominant_post_ablation.dominant_post(report(kept_post)) is None
    assert dominant_post_ablation.dominant_post(report(out)) is out
    # The card speaks of the one that outweighs the others most.
    assert dominant_post_ablation.dominant_post(report(kept_post, out)) is None


def test_little_time_is_not_spent_on_it(
    ablation_run: tuple[Path, list[str], MakeResult],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    folder, _, _ = ablation_run
    monkeypatch.setattr(dominant_post_ablation, "MOST_S", 0.0)
    listener = Listener()
    order = replace(tiny_make.make_request(folder), workspace=tmp_path / "w")
    result = pipeline.make(order, callbacks=listener)
    assert listener.messages == []
    assert dominant(result).rows[0].bits is None
    assert "not measured" in effect_of_decision(dominant(result))
