from pathlib import Path

import pytest

from exports import NON_ASCII
from exports import mail as export
from items import documents, notes
from ownwords.archive.document import RawDocument
from ownwords.archive.segments import parse_body
from ownwords.archive.sources import mail
from ownwords.core.errors import SourceError


def text_of(document: RawDocument) -> str:
    return "\n\n".join(s.text for s in parse_body(document.body, document.markup).segments)


def test_only_what_the_person_wrote_is_left(tmp_path: Path) -> None:
    read = documents(mail.read(export.write(tmp_path)))
    assert text_of(read["mail/1@x"]) == (
        f"A hat is a roof one wears. {NON_ASCII}\n\nFrom time to time one wears two.\n\n"
        "Is that enough?"
    )
    assert text_of(read["mail/2@x"]) == "And a coat is a wall."
    assert text_of(read["mail/3@x"]) == "It rains & rains."
    assert "ann@example.com" in notes(mail.read(export.write(tmp_path / "..")))


@pytest.mark.parametrize(
    "below",
    [
        "Am 30.01.2020 um 09:00 schrieb Bob <bob@example.com>:\n> INTRUDER",
        "Le jeu. 30 janv. 2020 à 09:00, Bob a écrit :\n\nINTRUDER",
        "________________________________\nINTRUDER",
        "From: Bob\nSent: Thursday\nINTRUDER",
        "Begin forwarded message:\n\nINTRUDER",
        "> INTRUDER\n> INTRUDER",
    ],
)
def test_quoted_mail_is_cut(below: str, tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    path.write_text(
        f"From: Ann <ann@example.com>\nSubject: Fwd: Hats\n\nYes.\n\n{below}\n", encoding="utf-8"
    )
    (document,) = documents(mail.read(path)).values()
    assert (document.title, text_of(document)) == ("Hats", "Yes.")


def test_a_folder_of_sent_mail_says_who_you_are(tmp_path: Path) -> None:
    lines = "\nSubject: Hats\nContent-Type: text/plain; format=flowed\n\nA hat \nis a roof.\n"
    for folder, name, sender in (
        ("Sent.mbox", "mbox", "ann@example.com"),
        ("Inbox", "1.eml", "bob@example.com"),
        ("Inbox", "2.eml", "bob@example.com"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(f"From: {sender}{lines}")
    (document,) = documents(mail.read(tmp_path)).values()
    assert text_of(document) == "A hat is a roof."
    (tmp_path / "Inbox" / "3.eml").write_text(f"From: eve@example.com{lines}")
    (tmp_path / "Inbox" / "4.eml").write_text(f"From: eve@example.com{lines}")
    with pytest.raises(SourceError, match="from 2 senders") as caught:
        list(mail.read(tmp_path / "Inbox"))
    assert "sent mail" in caught.value.hint


@pytest.mark.parametrize(("mark", "status"), [("0001", "published"), ("0009", "trashed")])
def test_mail_that_thunderbird_has_deleted_stays_out(
    mark: str, status: str, tmp_path: Path
) -> None:
    path = tmp_path / "Sent.mbox"
    path.write_text(f"From - 11:11\nFrom: a@x\nX-Mozilla-Status: {mark}\nSubject: Hats\n\nWords.\n")
    (document,) = documents(mail.read(path)).values()
    assert document.status == status
