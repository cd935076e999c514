"""Citations: whatever a model writes, only verbatim quotes are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from growth import is_far_from_quadratic
from ownwords.ask.citations import (
    AnswerBuilder,
    AnswerSentence,
    check_support,
    find_quote,
    parse_answer,
)
from sample_passages import BACKUPS, LATER, PASSAGES, QUOTED, passage

QUESTION = "How many copies do I keep?"
COPIES = "three copies of everything"


def reading(text: str) -> list[AnswerSentence]:
    return parse_answer(text, PASSAGES)


def parse_citations(text: str) -> list[list[tuple[int, str]]]:
    """The valid citations of each sentence: passages and words."""
    return [
        [(citation.passage.id, citation.quote) for citation in statement.cited]
        for statement in reading(text)
    ]


@pytest.mark.parametrize(
    "text",
    [
        f'You keep three copies [1: "{COPIES}"].',
        f'You keep three copies. [1: "{COPIES}"]',
        f"You keep three copies [1: '{COPIES}'].",
        f"You keep three copies [1: {COPIES}].",
        f'You keep three copies [1 - "{COPIES}"].',
        f'You keep three copies 【1: "{COPIES}"】.',
        f"You keep “{COPIES}” [1].",
        f'You keep "{COPIES}" (passage 1).',
        f'Answer: You keep three copies [1].\n\nSources:\nPassage 1: "{COPIES}"',
        f'You keep three copies [1] "{COPIES}".',
        f'You keep three copies [1].\n\nSources:\n[1] "{COPIES}"',
        f'You keep three copies [1].\n\n- [1]: "{COPIES}"',
        f'You keep three copies.\n[1: "{COPIES}"]',
        f'**You keep three copies** [1: "{COPIES}"].',
        f'- You keep three copies [1: "{COPIES}"].',
        f'<think>Is it [2: "x"]?\n\nNo.</think>You keep three copies [1: "{COPIES}"].',
        f'You keep three copies [1](https://example.org "x") [1: "{COPIES}"].',
        f'You keep three copies [1: "{COPIES}."].',
        'You keep three copies [1: "THREE  COPIES of\u00a0everything"].',
    ],
)
def test_every_form_of_a_citation_is_parsed(text: str) -> None:
    citations = [citation for sentence in parse_citations(text) for citation in sentence]
    assert (1, COPIES) in citations
    assert {number for number, _ in citations} == {1}
    assert all(quote in BACKUPS for _, quote in citations)
    statements = reading(text)
    assert "three copies" in statements[0].text
    assert "[" not in statements[0].text


def test_a_number_without_a_quote_needs_a_similar_passage() -> None:
    assert parse_citations("Nobody regrets a backup [1].") == [[(1, "Nobody regrets a backup.")]]
    (statement,) = reading("You distrust electricity and neighbours [1].")
    assert statement.cited == []
    assert statement.failed == ["passage 1 does not say that"]


def test_several_citations_of_one_sentence() -> None:
    text = (
        'You went from three copies to one [1: "three copies of everything"; 2: "One copy in the'
        ' cellar is plenty"].'
    )
    assert parse_citations(text) == [[(1, COPIES), (2, "One copy in the cellar is plenty")]]
    text = 'You did [1: "Nobody regrets a backup"][2: "the rest is vanity"]. And bread? [3]'
    assert parse_citations(text)[0] == [(1, "Nobody regrets a backup"), (2, "the rest is vanity")]


def test_a_full_stop_within_a_quotation_does_not_end_the_sentence() -> None:
    text = 'You wrote "I gave up on three copies. One copy in the cellar is plenty" [2].'
    assert parse_citations(text) == [
        [(2, "I gave up on three copies. One copy in the cellar is plenty")]
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('You keep three copies [9: "three copies of everything"].', "there is no passage 9"),
        ('You keep four [1: "four copies of everything"].', "does not contain"),
        ('You keep three [1: "three"].', "does not contain"),  # too short for evidence
        ('You keep three [1: "I keep … worth the electricity"].', "does not contain"),
    ],
)
def test_unsupported_citations_are_reported(text: str, why: str) -> None:
    (statement,) = reading(text)
    assert any(why in failure for failure in statement.failed)
    assert not any(citation.passage.id == 9 for citation in statement.cited)


def test_a_quote_from_another_passage_is_cited_from_there() -> None:
    (statement,) = reading('One is plenty [1: "One copy in the cellar is plenty"].')
    assert [citation.passage.id for citation in statement.cited] == [2]


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        ('The tape drive is "a monument to patience"', True),
        ("as my brother says. Nobody", True),
        ("a monument — to patience", False),
        ("three copies of everythin g that", True),  # spaces say nothing
        ("of everything three copies", False),
        ("a backup.", False),
        ("", False),
        ("… ...", False),
    ],
)
def test_the_position_of_a_quote_is_found(quote: str, stands: bool) -> None:
    span = find_quote(quote, BACKUPS)
    assert (span is not None) is stands


def test_the_second_line_of_a_quotation_needs_no_citation() -> None:
    span = find_quote("twenty years ago. The second best time", QUOTED)
    assert span is not None
    assert QUOTED[slice(*span)] == "twenty years ago.\n> The second best time"


@given(st.data())
def test_any_excerpt_of_a_text_is_located(data: st.DataObject) -> None:
    text = data.draw(st.text(min_size=30, max_size=120))
    begin = data.draw(st.integers(0, 10))
    quote = text[begin : data.draw(st.integers(begin + 20, len(text)))]
    span = find_quote(quote, text)
    if span is not None:
        assert text[slice(*span)] in text
    elif len("".join(c for c in quote if c.isalnum()).encode()) >= 30:
        # What is not found has nothing but what a quote may leave out.
        raise AssertionError(f"{quote!r} is not found in {text!r}")


PIECES = [
    *("[1", "[2: ", '"', "“", "”", "]", ". ", "three copies of everything", "\n", " [9]", "..."),
    *("You keep ", '[1: "Nobody regrets a backup"]', "Yes", "NOT IN"),
]


@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=25)))
def test_whatever_the_model_writes_only_real_quotes_are_shown(parts: str | list[str]) -> None:
    reported: list[str] = []
    composer = AnswerBuilder(PASSAGES, QUESTION, reported.append)
    for part in parts:
        composer.add(part)
    composer.end()
    assert "".join(reported) == composer.text
    assert bool(composer.text) == bool(composer.citations)
    for number, citation in enumerate(composer.citations, 1):
        source = next(item for item in PASSAGES if item.id == citation.passage.id)
        assert citation.quote in source.text
        assert f"[{number}]" in composer.text


def build_answer(text: str, question: str = QUESTION) -> AnswerBuilder:
    composer = AnswerBuilder(PASSAGES, question)
    composer.add(text)
    composer.end()
    return composer


@pytest.mark.parametrize("unit", [" \n", "-\n", "[1"])
@pytest.mark.parametrize("around", ["{}", "[{}1]"])
def test_an_answer_is_read_in_proportion_to_its_length(unit: str, around: str) -> None:
    text = around.format(unit * (12_000 // len(unit)))
    assert is_far_from_quadratic(lambda answer: parse_answer(answer, PASSAGES), text)


def test_citations_are_numbered_and_only_cited_passages_are_listed() -> None:
    answer = build_answer(
        'You gave up on that [2: "I gave up on three copies"]. You had kept three copies'
        f' [1: "{COPIES}"]. Bread is another matter. It all began with three [1: "{COPIES}"].'
    )
    assert answer.text == (
        "You gave up on that [1]. You had kept three copies [2]. It all began with three [2]"
        " (unchecked)."
    )
    assert [(citation.passage.id, citation.quote) for citation in answer.citations] == [
        (2, "I gave up on three copies"),
        (1, COPIES),
    ]
    (unchecked, left_out) = answer.notes()
    assert (
        unchecked == "(unchecked) marks a sentence with words that are not in its quote: “began”."
    )
    assert "1 sentence. Reasons: no citation" in left_out


BURNED = passage(9, "I painted the shed green. Nobody noticed. We burned the toast.")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        # All new words of the sentence must be in the sentence that is quoted, or it is marked.
        ("You painted the shed green", "You painted the shed green [1]."),
        ("You painted the old shed green", "You painted the old shed green [1] (unchecked)."),
        # None of them is: a true quote does not make it true.
        ("You burned the shed down", ""),
        ("The shed was sold to a farmer", ""),
        # Words of the question alone claim nothing new.
        ("The shed", "The shed [1]."),
    ],
)
def test_a_sentence_is_compared_with_its_quote(sentence: str, expected: str) -> None:
    builder = AnswerBuilder([BURNED], "What happened to the shed?")
    builder.add(f'{sentence} [1: "painted the shed green"].')
    builder.end()
    assert builder.text == expected
    if "unchecked" in expected:
        assert any("“old”" in note for note in builder.notes())
    if not expected:
        assert builder.reasons() == "the quote has none of its words"


def test_years_missing_from_the_quote_are_rejected() -> None:
    answer = build_answer(f'In 1999 you kept three copies [1: "{COPIES}"].')
    assert answer.text == ""
    assert answer.reasons() == "it says 1999, but the cited passage does not"
    assert build_answer(f'In 2009 you kept three copies [1: "{COPIES}"].').text
    numbers = passage(8, "It came to 12,500 pounds, all told.")
    for amount, holds in (("12500 pounds", True), ("12.500 pounds", True), ("2,500 pounds", False)):
        composer = AnswerBuilder([numbers], "What did it come to?")
        composer.add(f'It came to {amount} [1: "It came to 12,500 pounds"].')
        composer.end()
        assert bool(composer.text) is holds, amount
    wrong = "In 2021 you kept three copies."
    checked = reading(f'You keep three [1: "{COPIES}"].')[0].cited
    assert check_support(wrong, checked, QUESTION)[0]
    assert not check_support(wrong, checked, "How many did I keep in 2021?")[0]


def test_words_of_others_are_labelled() -> None:
    answer = build_answer(
        'Now is the second best time to plant a tree [5: "The second best time is now"].',
        "When should one plant a tree?",
    )
    assert answer.citations[0].whose == "quoted"
    assert "Not your own words: [1]." in answer.notes()
    quoted = passage(9, BACKUPS, whose="other")
    composer = AnswerBuilder([quoted], QUESTION)
    composer.add(f'Three copies are kept [1: "{COPIES}"].')
    composer.end()
    assert composer.citations[0].whose == "other"


def test_paragraphs_and_what_contradicts_are_kept() -> None:
    one, other = f'[1: "{COPIES}"]', '[2: "I gave up on three copies"]'
    answer = build_answer(f"You keep three {one}.\n\nYou gave up {other}.\nDISAGREE {one} {other}")
    assert answer.text.split("\n\n") == [
        "You keep three [1].",
        "You gave up [2].",
        f"You said in 2009 “{COPIES}” [1] and in 2021 “I gave up on three copies” [2].",
    ]


def test_sentences_are_streamed_once_verified() -> None:
    reported: list[str] = []
    composer = AnswerBuilder(PASSAGES, QUESTION, reported.append)
    text = f'You keep three [1: "{COPIES}"]. You gave up [2: "I gave up on three copies"]. An'
    reports = []
    for letter in text:
        composer.add(letter)
        reports.append(len(reported))
    assert reported == ["You keep three [1]."]
    assert reports[text.index("You gave")] == 0  # not before it is over
    composer.end()
    assert "".join(reported) == composer.text
    assert LATER.startswith(composer.citations[1].quote)
