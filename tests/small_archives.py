"""Small archives of a few posts."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from ownwords.archive.document import Document, Kind, Segment
from ownwords.archive.features import encode_features, extract_features
from ownwords.archive.store import Archive


@dataclass(frozen=True)
class Entry:
    """A post: its paragraphs, or its segments where it has more than prose."""

    title: str
    parts: tuple[str | Segment, ...]
    day: str = ""
    kind: Kind = "post"
    url: str = ""
    decision: str = "keep"
    flags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Changes with the text; the author's decision is not part of the text."""
        return repr(replace(self, decision="", flags=()))

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(
            part if isinstance(part, Segment) else Segment("prose", part) for part in self.parts
        )


def put(path: Path, entries: Mapping[str, Entry], removed: Iterable[str] = ()) -> None:
    """Store these posts, by id, beside what the archive holds; delete those in `removed`."""
    with Archive(path) as archive, archive.transaction():
        archive.remove(removed)
        present = archive.keys()
        for id_, entry in entries.items():
            if present.get(id_) == entry.key:
                continue
            day = datetime.fromisoformat(entry.day).replace(tzinfo=UTC) if entry.day else None
            document = Document(
                id_, entry.title, entry.segments, kind=entry.kind, date=day, url=entry.url
            )
            features = encode_features(extract_features(document))
            archive.put(document, entry.key, features)
        archive.set_selection((id_, entry.decision, 0, "") for id_, entry in entries.items())
        lines = [
            {"id": id_, "decision": entry.decision, "flags": list(entry.flags)}
            for id_, entry in entries.items()
        ]
        archive.set_meta("report", json.dumps({"posts": lines}))


# For questions of when and how often, asked on this day.
TODAY = date(2021, 1, 15)
DATED_POSTS = {
    "first": Entry("A drain", ("The drain and the rain gauge.",), "2017-02-12"),
    "kettle": Entry("The kettle", ("A kettle boils. The kettle leaks in the rain.",), "2018-03-05"),
    "backups": Entry("Three copies", ("Backups, and a tested backup. " + "w " * 90,), "2018-03-20"),
    "snow": Entry("What came down", ("Snow in the gauge, and the rain after it.",), "2019-12-31"),
    "last": Entry("The clip", ("A clip. The kettle boils again.",), "2020-11-10"),
    "undated": Entry("Once", ("Nobody knows when the rain came.",)),
    "page": Entry("About", ("A page on the kettle.",), "2016-01-01", kind="page"),
    "guest": Entry(
        "By a guest",
        ("My kettle. " * 200,),
        "2015-01-01",
        decision="leave out",
        flags=("unlike", "dominant"),
    ),
    "log": Entry("At night", (Segment("log", "kettle closed\n" * 900), "It rained."), "2019-06-01"),
}
