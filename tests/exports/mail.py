"""A mailbox of Google Takeout, with everything in it: sent, received, drafts and the bin."""

from email.message import EmailMessage
from pathlib import Path

from exports import NON_ASCII, write_zip

PUBLISHED = {
    "mail/1@x": ("On hats", "2020-01-31"),
    "mail/2@x": ("On coats", "2020-02-01"),
    "mail/3@x": ("Rain", "2020-02-02"),
}
LEFT_OUT = {"draft": 1, "trashed": 1}

ANN, BOB = "Ann Author <Ann@example.com>", "Bob <bob@example.com>"
HATS = f"""A hat is a roof one wears. {NON_ASCII}

From time to time one wears two.

On Thu, 30 Jan 2020 at 09:00, Bob
<bob@example.com> wrote:

> INTRUDER asks what a hat is.

Is that enough?
--\x20
INTRUDER signature
"""
COATS = """And a coat is a wall.

-----Original Message-----
From: Bob
INTRUDER
"""
RAIN = (
    "<html><body><p>It rains &amp; rains.</p><div class='gmail_signature'>INTRUDER</div>"
    "<div id='appendonsend'></div><hr><div>From: Bob INTRUDER</div></body></html>"
)


def message(number: int, sender: str, subject: str, day: str, labels: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = BOB if sender == ANN else ANN
    mail["Subject"] = subject
    mail["Date"] = f"{day} 10:00:00 +0000"
    mail["Message-ID"] = f"<{number}@x>"
    mail["X-Gmail-Labels"] = labels
    return mail


def messages() -> list[EmailMessage]:
    hats = message(1, ANN, "Re: Re: On hats", "Fri, 31 Jan 2020", "Sent,Opened")
    hats.set_content(HATS)
    hats.add_attachment(b"INTRUDER" * 99, maintype="image", subtype="png", filename="a.png")
    coats = message(2, ANN, "AW: On coats", "Sat, 1 Feb 2020", "Opened")  # sent from elsewhere
    coats.set_content(COATS)
    rain = message(3, ANN, "Rain", "Sun, 2 Feb 2020", "Sent")
    rain.set_content(RAIN, subtype="html")
    received = [
        message(n, BOB, "INTRUDER", "Mon, 3 Feb 2020", "Inbox,Unread") for n in range(10, 15)
    ]
    draft = message(20, ANN, "Not yet", "Mon, 3 Feb 2020", "Drafts")
    trashed = message(21, ANN, "Away", "Mon, 3 Feb 2020", "Trash,Sent")
    for mail in (*received, draft, trashed):
        mail.set_content("TRASHCANARY")
    return [hats, *received, coats, rain, draft, trashed, hats]


def mbox() -> bytes:
    """The messages, each after a line of its own; lines that look like that are escaped."""
    separator = b"From 1234@xxx Fri Jan 31 10:00:00 +0000 2020\n"
    return b"".join(
        separator + bytes(mail).replace(b"\nFrom ", b"\n>From ") + b"\n\n" for mail in messages()
    )


def write(folder: Path) -> Path:
    """Write the zip of Takeout."""
    members = {
        "Takeout/Mail/All mail Including Spam and Trash.mbox": mbox(),
        "Takeout/archive_browser.html": b"<html>INTRUDER</html>",
    }
    return write_zip(folder / "takeout-20230101T000000Z-001.zip", members)
