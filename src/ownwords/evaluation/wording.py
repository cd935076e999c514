"""The scorecard's figures in words; the page and the terminal say the same."""

from collections.abc import Callable, Sequence

from ownwords.archive.report.formatting import count, day, plain, quoted, size
from ownwords.core.progress import duration
from ownwords.evaluation.bootstrap import Estimate
from ownwords.evaluation.scorecard import (
    BitsRow,
    Conclusion,
    CopiedPassage,
    Dominant,
    ModelFacts,
    Scorecard,
    WritingSample,
)

WHAT_BARS_MEAN = (
    "A bar is the figure; the thin line at its end is where it would lie with other posts of yours,"
    " 95 times of 100."
)

_BLIND = 8  # bits a byte, of who knows nothing


def name(card: Scorecard) -> str:
    """What was learned from, in a few words."""
    return plain(card.name, 120) or "Your writing"


def bits(value: float) -> str:
    """Bits a byte: 1.49."""
    return f"{value:.2f}"


def rate(share: float) -> str:
    """A share of which tenths count: 1.2%, 14%; never "0.0%" for something."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}%" if share < 0.0995 or 0.985 < share < 1 else f"{share:.0%}"


def between(low: float | None, high: float | None, said: Callable[[float], str]) -> str:
    """A range; empty where nobody can say."""
    return "" if low is None or high is None else f"{said(low)} to {said(high)}"


def sure(one: Estimate) -> str:
    """A share with its range: "62% (51% to 72%)"."""
    found = one.interval
    return rate(one.value) + (f" ({between(found.low, found.high, rate)})" if found else "")


def learned_from(about: ModelFacts) -> str:
    """How much text, and what it began with."""
    began = f", tuned from {plain(about.base, 60)}" if about.base else ", trained from nothing"
    return (
        f"A model of {about.parameters / 1e6:,.1f} million parameters{began}, of"
        f" {count(about.training_words, 'word')} in {count(about.training_posts, 'post')}"
        f" ({size(about.training_bytes)})."
    )


def judged_on(about: ModelFacts) -> str:
    """Which posts judged the model."""
    if not about.judged_posts:
        return "No post was held out to judge it by."
    of = "" if about.judged_posts == about.test_posts else f" of {count(about.test_posts)}"
    posts = f"{count(about.judged_posts)}{of} {'post' if about.test_posts == 1 else 'posts'}"
    return (
        f"Judged on {posts} held out whole ({size(about.judged_bytes)}), which neither training nor"
        " choosing has seen."
    )


def what_bits_mean(ours: BitsRow) -> str:
    """The figure of ours in a picture."""
    return (
        "Before each letter of a post it has never seen the model says which comes next. Bits a"
        f" byte are how surprised it was: less is better. {bits(ours.bits)} is as if it wavered"
        f" between {2**ours.bits:.1f} equally likely letters each time; who knows nothing needs"
        f" {_BLIND}."
    )


def ahead(row: BitsRow) -> str:
    """By how much ours is better than this row, and how sure that is; empty for ours itself."""
    if row.gain is None:
        return ""
    if row.gain_low is None or row.gain_high is None:
        return f"your model needs {fewer(row)} on the one post there is"
    if row.gain_low <= 0 <= row.gain_high:
        return "no sure difference to your model"
    return f"your model needs {fewer(row)}"


def fewer(row: BitsRow) -> str:
    """How many bits ours needs less than this row: "6.9% fewer (5.7% to 8.2%)"."""
    whole, gain = row.bits or 1.0, row.gain or 0.0
    if gain < -whole:
        return f"{1 - gain / whole:.1f} times as many bits"
    said = f"{rate(abs(gain) / whole)} {'fewer' if gain >= 0 else 'more'} bits"
    if row.gain_low is None or row.gain_high is None:
        return said
    low, high = sorted(abs(one) / whole for one in (row.gain_low, row.gain_high))
    return f"{said} ({between(low, high, rate)})"


def note(row: BitsRow) -> str:
    """What a row is, and how far ours is ahead."""
    trained = f"trained for {duration(row.seconds)}" if row.seconds else ""
    return " · ".join(part for part in (plain(row.how, 120), trained, ahead(row)) if part)


def source(run: CopiedPassage) -> str:
    """Where a passage stands: "in “Title”, 9 March 2014"."""
    if not run.title:
        return "in one of your posts"
    return f"in {quoted(run.title, 90)}" + (f", {day(run.day)}" if run.day else "")


def in_turn(samples: Sequence[WritingSample]) -> list[WritingSample]:
    """Those with a base beside them first; of these, begun texts and new ones in turn."""
    beside = [one for one in samples if one.base is not None] or list(samples)
    begun = [one for one in beside if one.prompt]
    new = [one for one in beside if not one.prompt]
    first = [one for pair in zip(begun, new, strict=False) for one in pair]
    return first + [one for one in samples if one not in first]


def how_sampled(card: Scorecard) -> str:
    """How the samples came about."""
    said = "Written by your model, nothing chosen or edited."
    if any(one.base is not None for one in card.samples):
        said = (
            "The same beginning and the same seed, first with its base, then with your model;"
            " nothing was chosen or edited."
        )
    if any(one.prompt for one in card.samples):
        said += " Some texts are new, some go on from the first words of a post it has never seen."
    return said


def beginning(one: WritingSample) -> str:
    """How a sample begins."""
    body = one.prompt.removeprefix(one.title).strip() if one.title else one.prompt
    return f"{plain(body, 160)} …" if one.prompt else "A new text"


def where_from(one: WritingSample) -> str:
    """The luck of a sample, and the post it begins like."""
    begins = f"the first words of {quoted(one.title, 90)}, " if one.title else ""
    return f"{begins}seed {one.seed}"


def paragraphs(text: str) -> list[str]:
    """The lines of a sample that are not empty; what is cut off in mid-sentence shows it."""
    lines = [line for line in map(plain, text.split("\n")) if line]
    if lines and lines[-1][-1] not in ".!?…\"'”’)":
        lines[-1] += " …"
    return lines or ["(nothing)"]


def what_dropping_did(one: Dominant) -> str:
    """What the decision about a dominant post brought."""
    measured = [row.bits for row in one.rows if row.bits is not None]
    if len(measured) < len(one.rows):
        return (
            "Whether the model is better for it was not measured: that takes a second model,"
            " trained with the post in full."
        )
    before, after = measured
    better = "better" if after <= before else "worse"
    share = rate(abs(before - after) / before)
    if one.gain_low is None or one.gain_high is None or one.gain_low <= 0 <= one.gain_high:
        return "On so few posts the two models cannot be told apart."
    return f"The model of the decision is {better} by {share} on posts it has never seen."


def is_bad(verdict: Conclusion) -> bool:
    """Whether a verdict should be seen at once."""
    return verdict.kind in ("gibberish", "copies you")


def headline(card: Scorecard) -> list[tuple[str, str, str]]:
    """The few figures that stand for all: (figure, what it is, beside what)."""
    found: list[tuple[str, str, str]] = []
    ours, base = card.ours, card.untouched
    if ours:
        rival = f"{bits(base.bits)} by its base" if base else f"{_BLIND} by blind guessing"
        found.append((bits(ours.bits), "bits a byte on unseen posts", rival))
    told = card.voice.letters if card.voice else None
    if told:
        real = f"of your own unseen ones {rate(told.held_out_taken.value)}"
        found.append((rate(told.samples_taken.value), "of its passages taken for you", real))
    if card.fluency:
        strange = card.fluency.non_words or card.fluency.new_words
        label = "non-words" if card.fluency.non_words else "words new to it"
        real = f"in your unseen posts {rate(strange.held_out.value)}" if strange.held_out.of else ""
        found.append((rate(strange.samples.value), label, real))
    if card.memorised:
        run = card.memorised.guarded or card.memorised.unguarded
        guard = "with" if card.memorised.guarded else "without"
        what = f"{'word' if run.words == 1 else 'words'} copied on end at most"
        found.append((count(run.words), what, f"{guard} the copy guard"))
    return found


def how_voice(card: Scorecard) -> str:
    """How the voice was measured."""
    found = card.voice
    if found is None:
        return ""
    said = (
        f"Measured on passages of {count(found.passage_words, 'word')}: {count(found.training)} you"
        f" wrote and it learned from, {count(found.held_out)} held out, {count(found.samples)} of"
        " its own"
    )
    if found.authors:
        said += f", {count(found.others)} by {count(found.authors, 'other author')}"
    # Without a distance the reason is all there is to say, and it is said above.
    return f"{said}. {found.reason}".strip() if found.delta else ""


def how_fluency(card: Scorecard) -> str:
    """How the language was measured."""
    found = card.fluency
    if found is None:
        return ""
    return (
        f"Measured on texts of {count(found.passage_words, 'word')}, its own and yours: what is"
        f" longer repeats more. {found.reason}"
    ).strip()


def made_of(card: Scorecard) -> list[tuple[str, str]]:
    """What the model was made from, and what that took."""
    about = card.about
    return [
        (
            "Learned from",
            f"{count(about.training_posts, 'post')}, {count(about.training_words, 'word')}"
            f" ({size(about.training_bytes)})",
        ),
        ("Held out to choose by", count(about.validation_posts, "post")),
        ("Held out to judge by", count(about.test_posts, "post")),
        ("Size", f"{about.parameters / 1e6:,.1f} million parameters"),
        ("Tuned from", plain(about.base, 80) or "nothing: trained on your posts alone"),
        *((plain(one.name, 40).capitalize(), duration(one.seconds)) for one in card.seconds),
    ]


def in_two(lines: Sequence[str], room: int = 620) -> tuple[list[str], list[str]]:
    """What of a sample is seen at once, and the rest."""
    shown: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > room:
            cut = line.rfind(" ", 0, room) if room > 80 else -1
            if cut < 0:
                return shown, list(lines[number:])
            return [*shown, f"{line[:cut]} …"], [f"… {line[cut + 1 :]}", *lines[number + 1 :]]
        shown.append(line)
        room -= len(line)
    return shown, []
