"""Sentences and formatted numbers of the scorecard, shared by the page and the terminal."""

from collections.abc import Callable, Sequence

from ownwords.archive.report.formatting import count, day, plain, quoted, size
from ownwords.core.progress import duration
from ownwords.evaluation.intervals import Estimate
from ownwords.evaluation.scorecard import (
    BitsRow,
    Conclusion,
    CopiedPassage,
    Dominant,
    ModelFacts,
    Scorecard,
    WritingSample,
)
from ownwords.evaluation.voice import Voice

WHAT_BARS_MEAN = (
    "Each bar is the measured value. The thin line at its end is the 95% confidence interval: where"
    " the value would lie with other posts of yours."
)

NO_RANGE = "too few posts for a range"
_UNIFORM_BITS = 8  # bits per byte of a uniform guess


def name(card: Scorecard) -> str:
    """Name of the blog."""
    return plain(card.name, 120) or "Your writing"


def bits(value: float) -> str:
    """Format bits per byte: 1.49."""
    return f"{value:.2f}"


def rate(share: float) -> str:
    """Format a share: 1.2%, 14%; never "0.0%" for something."""
    if share in (0, 1):
        return f"{share:.0%}"
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}%" if share < 0.0995 or 0.985 < share < 1 else f"{share:.0%}"


def between(low: float | None, high: float | None, format_value: Callable[[float], str]) -> str:
    """Format a range; empty if it is unknown."""
    return "" if low is None or high is None else f"{format_value(low)} to {format_value(high)}"


def rate_with_range(estimate: Estimate) -> str:
    """Format a share with its interval: "62% (51% to 72%)"."""
    interval = estimate.interval
    span = f" ({between(interval.low, interval.high, rate)})" if interval else ""
    return rate(estimate.value) + span


def learned_from(about: ModelFacts) -> str:
    """Size of the model, its base and its training data."""
    origin = f"fine-tuned from {plain(about.base, 60)}" if about.base else "trained from scratch"
    return (
        f"{about.parameters / 1e6:,.1f} million parameters, {origin} on"
        f" {count(about.training_words, 'word')} in {count(about.training_posts, 'post')}"
        f" ({size(about.training_bytes)})."
    )


def judged_on(about: ModelFacts) -> str:
    """The held-out posts behind the figures."""
    if not about.judged_posts:
        return "No post was held out to measure it on."
    of = "" if about.judged_posts == about.test_posts else f" of {count(about.test_posts)}"
    posts = (
        f"{count(about.judged_posts)}{of} held-out {'post' if about.test_posts == 1 else 'posts'}"
    )
    text = (
        f"Measured on {posts} ({size(about.judged_bytes)}), used neither for training nor for"
        " choosing a model."
    )
    if about.validation_posts:
        text += " Voice and fluency are also compared with posts held out to choose a model."
    return text


def what_bits_mean(ours: BitsRow) -> str:
    """Explain bits per byte with the model's own figure."""
    return (
        "The model predicts each next letter of a post it has never seen. Bits per byte say how"
        f" much it is surprised: lower is better. {bits(ours.bits)} is like choosing between"
        f" {2**ours.bits:.1f} equally likely letters each time; a blind guess takes"
        f" {_UNIFORM_BITS}."
    )


def compared_with(row: BitsRow) -> str:
    """How much better the model is than a row: "6.9% better (5.7% to 8.2%)"."""
    rival_bits, gain = row.bits or 1.0, row.gain or 0.0
    if gain < -rival_bits:
        return f"{1 - gain / rival_bits:.1f} times worse"
    better = f"{rate(abs(gain) / rival_bits)} {'better' if gain >= 0 else 'worse'}"
    if row.gain_low is None or row.gain_high is None:
        return better
    low, high = row.gain_low / rival_bits, row.gain_high / rival_bits
    if low < 0 < high:
        return f"{better} ({rate(-low)} worse to {rate(high)} better)"
    low, high = sorted((abs(low), abs(high)))
    return f"{better} ({between(low, high, rate)})"


def note(row: BitsRow) -> str:
    """What a row is, how long it was trained, and how the model compares."""
    trained = f"trained for {duration(row.seconds)}" if row.seconds else ""
    compared = "" if row.gain is None else f"your model is {compared_with(row)}"
    return " · ".join(part for part in (plain(row.how, 120), trained, compared) if part)


def source(passage: CopiedPassage) -> str:
    """Where a passage occurs: "in “Title”, 9 March 2014"."""
    if not passage.title:
        return "in one of your posts"
    return f"in {quoted(passage.title, 90)}" + (f", {day(passage.day)}" if passage.day else "")


def in_turn(samples: Sequence[WritingSample]) -> list[WritingSample]:
    """Samples with a base's text first; among these, continued and new texts alternate."""
    paired = [sample for sample in samples if sample.base is not None] or list(samples)
    continued = [sample for sample in paired if sample.prompt]
    new = [sample for sample in paired if not sample.prompt]
    first = [sample for pair in zip(continued, new, strict=False) for sample in pair]
    return first + [sample for sample in samples if sample not in first]


def how_sampled(card: Scorecard) -> str:
    """How the samples were written."""
    text = "Written by your model; nothing was selected or edited."
    if any(sample.base is not None for sample in card.samples):
        text = (
            "The same beginning and the same seed, first with the base model, then with yours;"
            " nothing was selected or edited."
        )
    if any(sample.prompt for sample in card.samples):
        text += " Some texts are new; others continue the first words of an unseen post."
    return text


def beginning(sample: WritingSample) -> str:
    """How a sample begins."""
    prompt = sample.prompt.removeprefix(sample.title).strip() if sample.title else sample.prompt
    return f"{plain(prompt, 160)} …" if sample.prompt else "A new text"


def where_from(sample: WritingSample) -> str:
    """Seed of a sample, and the post whose beginning it continues."""
    continues = f"continues {quoted(sample.title, 90)}, " if sample.title else ""
    return f"{continues}seed {sample.seed}"


def paragraphs(text: str) -> list[str]:
    """The non-empty lines of a sample, with an ellipsis where it stops in mid-sentence."""
    lines = [line for line in map(plain, text.split("\n")) if line]
    if lines and lines[-1][-1] not in ".!?…\"'”’)":
        lines[-1] += " …"
    return lines or ["(nothing)"]


def effect_of_decision(post: Dominant) -> str:
    """How the decision about a dominant post changed the model."""
    measured = [row.bits for row in post.rows if row.bits is not None]
    if len(measured) < len(post.rows):
        return (
            "Whether this improves the model was not measured: that takes a second model, trained"
            " on the full post."
        )
    before, after = measured
    better = "better" if after <= before else "worse"
    if post.gain_low is None or post.gain_high is None:
        return "There are too few posts to tell the two models apart."
    if post.gain_low <= 0 <= post.gain_high:
        return "There is no clear difference between the two models."
    share = rate(abs(before - after) / before)
    return f"With this decision the model predicts unseen posts {share} {better}."


def is_bad(verdict: Conclusion) -> bool:
    """Whether a conclusion needs attention."""
    return verdict.kind in ("gibberish", "copies you")


def headline(card: Scorecard) -> list[tuple[str, str, str]]:
    """The main figures: (figure, what it measures, comparison)."""
    rows: list[tuple[str, str, str]] = []
    ours, base = card.ours, card.untouched
    if ours:
        rival = f"{bits(base.bits)} for its base" if base else f"{_UNIFORM_BITS} for a blind guess"
        rows.append((bits(ours.bits), "bits per byte on unseen posts", rival))
    letters = card.voice.letters if card.voice else None
    if letters:
        real = f"{rate(letters.held_out_taken.value)} of your own unseen ones"
        rows.append(
            (rate(letters.samples_taken.value), "of its passages classified as yours", real)
        )
    if card.fluency:
        strange = card.fluency.non_words or card.fluency.new_words
        label = "made-up words" if card.fluency.non_words else "words new to it"
        real = f"{rate(strange.held_out.value)} in your unseen posts" if strange.held_out.of else ""
        rows.append((rate(strange.samples.value), label, real))
    if card.memorised:
        passage = card.memorised.guarded or card.memorised.unguarded
        guard = "with" if card.memorised.guarded else "without"
        label = f"{'word' if passage.words == 1 else 'words'} copied in a row at most"
        rows.append((count(passage.words), label, f"{guard} the copy guard"))
    return rows


def how_voice(card: Scorecard) -> str:
    """How the voice was measured, and how to read its two measures together."""
    voice = card.voice
    if voice is None or voice.delta is None:
        return ""  # the reason is the conclusion then
    text = (
        f"Measured on passages of {count(voice.passage_words, 'word')}: {count(voice.training)}"
        f" from your training posts, {count(voice.held_out)} from your held-out posts,"
        f" {count(voice.samples)} from the model"
    )
    if voice.authors:
        text += f", {count(voice.others)} by {count(voice.authors, 'other author')}"
    return " ".join(part for part in (f"{text}.", voice.reason, read_together(voice)) if part)


def read_together(voice: Voice) -> str:
    """One sentence on what the classifier and Burrows' Delta say together; empty without both."""
    letters, delta = voice.letters, voice.delta
    if letters is None or delta is None or delta.others is None:
        return ""
    share, middle = letters.samples_taken.value, delta.samples.median.value
    halfway = (letters.held_out_taken.value + letters.others_taken.value) / 2
    is_your_phrasing = share >= halfway
    are_your_common_words = middle <= (delta.held_out.median.value + delta.others.median.value) / 2
    if is_your_phrasing and are_your_common_words:
        return (
            "Both measures place it near you: the classifier by its phrases, Burrows’ Delta by how"
            " often it uses common words."
        )
    if is_your_phrasing:
        return (
            "The classifier recognizes your phrases, while Burrows’ Delta shows that it uses common"
            " words (“the”, “but”) more as other authors do: it has picked up what you say more"
            " than how you build sentences."
        )
    if are_your_common_words:
        return (
            "It uses common words about as often as you do, which even shuffled text would; the"
            " classifier, which sees phrases, tells it apart from you."
        )
    return "Both measures place it nearer to other authors than to you."


def how_fluency(card: Scorecard) -> str:
    """How fluency was measured."""
    if card.fluency is None:
        return ""
    return (
        f"Measured on texts of {count(card.fluency.passage_words, 'word')}, its own and yours,"
        f" since longer texts repeat more. {card.fluency.reason}"
    ).strip()


def made_of(card: Scorecard) -> list[tuple[str, str]]:
    """Data, size and origin of the model, and the time each stage took."""
    about = card.about
    return [
        (
            "Trained on",
            f"{count(about.training_posts, 'post')}, {count(about.training_words, 'word')}"
            f" ({size(about.training_bytes)})",
        ),
        ("Held out to choose a model", count(about.validation_posts, "post")),
        ("Held out to measure it", count(about.test_posts, "post")),
        ("Size", f"{about.parameters / 1e6:,.1f} million parameters"),
        ("Fine-tuned from", plain(about.base, 80) or "nothing: trained on your posts only"),
        *((plain(stage.name, 40).capitalize(), duration(stage.seconds)) for stage in card.seconds),
    ]


_LINE = 60  # characters that a line takes up at least


def in_two(lines: Sequence[str], limit: int = 620) -> tuple[list[str], list[str]]:
    """Split the lines of a sample into what is shown at once and the rest."""
    shown: list[str] = []
    for number, line in enumerate(lines):
        if len(line) > limit:
            cut = line.rfind(" ", 0, limit) if limit > 80 else -1
            if cut < 0:
                return shown, list(lines[number:])
            return [*shown, f"{line[:cut]} …"], [f"… {line[cut + 1 :]}", *lines[number + 1 :]]
        shown.append(line)
        limit -= max(len(line), _LINE)  # a list of short lines is long, too
    return shown, []
