"""A sentence keeps the facts of a note, in whatever words, or it is found not to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.drafts.facts import Content, lines_not_shown_in

# A note, the sentences that keep its facts, and those that do not.
ROWS = [
    (
        "opened in aug 2017, closed Feb",
        ["It opened in August 2017 and closed in February."],
        ["It opened in April 2017 and closed in February."],
    ),
    (
        "waited an hour in the rain",
        ["I waited an hour in the rain."],
        ["I waited half an hour in the rain."],
    ),
    ("old mill sold 3½ tons", ["The old mill sold 3½ tons."], ["The old mill sold 3 tons."]),
    (
        "Anna was not late. Bob called",
        ["Anna was not late. Bob called."],
        ["Anna was late. Not Bob called."],
    ),
    (
        "temperature at night -5 C",
        ["At night the temperature was −5 °C.", "The temperature at night was minus five celsius."],
        ["The temperature at night was 5 C.", "The temperature at night was -5 F."],
    ),
    ("balance=-5", ["The balance was -5.", "Balance: -5."], ["The balance was 5."]),
    (
        "0.3 metre lost in half hour",
        ["I lost 0.3 of a metre in half an hour."],
        ["I lost 0.3 of a mile in half an hour.", "I lost 0.3 of a metre in an hour."],
    ),
    (
        "5 people came to the talk",
        ["Five people came to the talk.", "Five old people came to the talk."],
        [
            "About 5% of the people came to the talk.", "People came to the talk for $5.",
            "People came to the 5 talks.", "5 dogs came to the talk.",
            "Over 5 people came to the talk.",
        ],
    ),
    (
        "I ran 5 km with 2 dogs",
        ["I ran five kilometres with my two old dogs."],
        ["I ran 2.5 km with 2 dogs.", "I ran 2 km with 5 dogs.", "I ran 5 miles with 2 dogs."],
    ),
    (
        "500 copies sold on day 1",
        ["Five hundred copies were sold on day one."],
        ["1,500 copies were sold on day 1.", "500 copies were sold on day 15."],
    ),
    (
        "sold thirteen books at the fair",
        ["We sold 13 books at the fair."],
        ["I sold thirty books at the fair.", "I sold books at the fair.",
         "I sold twenty-three books at the fair.", "I sold thirteen tickets at the fair.",
         "I did not sell thirteen books at the fair."],
    ),
    (
        "profit up 10% in spring",
        ["In spring, profit rose by ten per cent.", "Profit was 10% up in spring."],
        ["Profit went down by 10% in spring.", "Profit was 10% in spring.",
         "Profit went up to 10% in spring."],
    ),
    (
        "rain up 10% in spring, down 5% in autumn",
        ["Rain rose by 10% in spring but fell by 5% in autumn."],
        ["Rain fell by 10% in spring but rose by 5% in autumn.",
         "Rain was up 5% in spring and down 10% in autumn."],
    ),
    (
        "more rain in May, less in June",
        ["May had more rain, and June less."],
        ["There was less rain in May and more in June.", "There was less rain in May and June."],
    ),
    (
        "left the house before 6",
        ["Before six, we left the house."],
        ["I left the house after 6.", "I left the house at 6.", "I left the house before 6 pm."],
    ),
    ("2019 trips to Leeds", ["I had trips to Leeds in 2019."], ["My trips were in 2019."]),
    ("since 2019 in Leeds", ["I have been in Leeds since 2019."], ["I was in Leeds until 2019."]),
    ("sales halved in May", ["In May, sales halved."], ["In May, sales doubled."]),
    ("Hale accepted the terms", ["Hale has accepted the terms."], ["Hale rejected the terms."]),
    ("over 20 came", ["More than 20 came.", "Over twenty came."], ["Fewer than 20 came."]),
    ("4 June, 2nd of 3 days", ["It was June 4th, the second of three days."], ["It was 5 June."]),
    ("$1.5 million, not £2k", ["It was $1,500,000 and not £2,000."], ["It was £1,500,000."]),
    (
        "Anna met Bob at the station in London",
        ["In London, Anna met Bob at the station.", "Bob was met by Anna at London station."],
        ["I met Bob at the station in London.", "Bob met Anna at the station in London.",
         "Anna was met by Bob at the station in London.", "Anna met Bob at the station.",
         "Hale met Anna and Bob at the station in London."],
    ),
    ("Anna saw Bob and Bob saw Anna", ["Anna saw Bob, and Bob saw Anna."], ["Bob saw Anna."]),
    (
        "Anna 5 goals, Bob 7",
        ["Anna scored five goals, Bob seven."],
        ["Bob had 5 goals and Anna 7.", "Anna had 7 goals and Bob 5."],
    ),
    (
        "earned 40 in 2019, 60 in 2020",
        ["I earned forty in 2019 and sixty in 2020."],
        ["I earned 60 in 2019 and 40 in 2020.", "I earned 40 in 2020 and 60 in 2019."],
    ),
    (
        "kids with fever, no school",
        ["There's no school for kids with fever.", "Kids with fever do not go to school."],
        ["No kids with fever at school.", "Kids with no fever are at school.",
         "Kids with fever go to school."],
    ),
    (
        "don't own a smartphone still",
        ["I still do not own a smartphone."],
        ["I still have it.", "I own a smartphone, not a computer, still.",
         "I can't say I don't own a smartphone still."],
    ),
    ("he left early", ["He was early to leave."], ["She left early.", "He left late."]),
    (
        "zola has parking_lot and c2t",
        ["Zola has parking_lot and c2t."],
        ["Zola has parking_lot, c2t and tl_auth.", "Zola has parking_lot."],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("note", "kept", "lost"), ROWS, ids=[row[0] for row in ROWS])
def test_a_fact_is_kept_in_other_words_and_not_with_another_sense(
    note: str, kept: list[str], lost: list[str]
) -> None:
    wanted = Content.of(note)
    assert [text for text in kept if not Content.of(text).keeps_facts_of(wanted)] == []
    assert [text for text in lost if Content.of(text).keeps_facts_of(wanted)] == []


def test_a_line_is_shown_in_a_sentence_that_says_more_and_not_where_its_sense_is_turned() -> None:
    notes = ["no lawyers needed", "simple to do", "no way to test without spare server"]
    text = (
        "It's simple to do, and doesn't need lawyers. Without a spare server, I've no way to test."
    )
    assert [*lines_not_shown_in(text, notes)] == []
    turned = "It isn't simple to do, and needs lawyers. With a spare server, I've no way to test."
    assert [*lines_not_shown_in(turned, notes)] == notes


def test_what_other_notes_say_is_not_made_up() -> None:
    note, known = Content.of("Anna left"), Content.of("Anna left\nLeeds at 9")
    text = Content.of("Anna left Leeds at 9.")
    assert text.invented(note) == {"leeds", "9"} and not text.invented(known)
    assert text.keeps_facts_of(note, known) and not text.keeps_facts_of(note)
    note, known = Content.of("ran 5 km"), Content.of("ran 5 km\nrode 5 miles")
    assert not Content.of("I ran 5 miles.").keeps_facts_of(note, known)


PIECES = """
five two hundred thousand million 2.5 1,500 1.2.3 -5 £5 % C km no nor not up down less before Anna
Bob “a b” http://x.y/z , . ; - 14th June about ~5 20+ twenty-one one
"""


@given(st.lists(st.sampled_from(PIECES.split()), max_size=9).map(" ".join))
def test_any_text_keeps_its_own_facts(text: str) -> None:
    content = Content.of(text)
    assert content.keeps_facts_of(content) and not content.invented(content)
