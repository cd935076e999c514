"""Addresses and numbers are found where people wrote them, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.features import EXAMPLES, NO_PII, PiiMatches, find_pii, mask_email, mask_phone

PHONES = [
    "Call me at +48 601 234 567.",
    "tel. 601 234 567",
    "Phone: (415) 555-0132",
    "my number is +1 415 555 0132, ask for Jane",
    "from abroad 0048 22 123 45 67",
    "fax 020 7946 0958",
    "+44 (0)20 7946 0958",
    "(020) 7946 0958",
    "+4915112345678",
    "Tel.: 030/1234567",
    "tel:+48601234567",
    "mobile number 07700 900123",
]
NO_PHONES = [
    "ISBN 978-3-16-148410-0",
    "ISBN-10: 0-306-40615-2",
    "on 2021-03-04 12:30:15",
    "04.05.2021, 05/06/2022",
    "192.168.100.200",
    "version 1.22.333.4444",
    "$1,234,567.89",
    "1 234 567 zł",
    "order no. 123456789",
    "ticket #4567891234",
    "(1999) 2000 2001",
    "+1 000 000 people",
    "00:15:30 00:16:45",
    "card 4111 1111 1111 1111",
    "0x00112233445566",
    "EAN 5901234123457",
    "I call 1999 2000 2001 the good years",
    "lat 52.2296756, lon 21.0122287",
    "+2 +3 +4 +5 +6 +7 +8",
    "000-0000-0000",
]


@pytest.mark.parametrize("text", PHONES)
def test_a_phone_number_is_reported_once(text: str) -> None:
    assert find_pii(text).phones == 1


@pytest.mark.parametrize("text", NO_PHONES)
def test_other_numbers_are_ignored(text: str) -> None:
    assert find_pii(text) == NO_PII


def test_addresses_are_counted_and_masked() -> None:
    text = "jane.doe@example.org, Żółć@poczta.pl or <x@mail.example.co.uk>; jane.doe@example.org."
    assert find_pii(text) == PiiMatches(4, 0, ("j…@e….org", "Ż…@p….pl", "x…@m….uk"))


@pytest.mark.parametrize(
    "text",
    ["not@home", "@handle", "user@localhost", "git@host.example:me/it.git", "icon@2x.png", "a@b.c"],
)
def test_lookalikes_of_addresses_are_ignored(text: str) -> None:
    assert find_pii(text).emails == 0


def test_examples_are_few_and_distinct() -> None:
    matches = find_pii(
        " ".join(f"a{i}@{'xyzuvw'[i]}.example.org" for i in range(6)) + " tel. 600 700 800"
    )
    assert matches.emails == 6
    assert len(matches.examples) == EXAMPLES + 1


def test_masks_keep_little() -> None:
    assert mask_phone("+48 601 234 567") == "+48 … 67"
    assert mask_phone("+48601234567") == "+… 67"
    assert mask_phone("(415) 555-0132") == "… 32"
    assert mask_email("jane@example.org") == "j…@e….org"


@given(st.text(alphabet="a@.+-() 0123456789\n:/", max_size=200))
def test_no_text_breaks_it_and_no_example_tells_a_whole_number(text: str) -> None:
    for example in find_pii(text).examples:
        assert "…" in example
        assert sum(char.isdigit() for char in example.split("…")[-1]) <= 2
