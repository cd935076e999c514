"""The report as the page shows it: the same figures and the same words as report.html."""

from dataclasses import asdict
from typing import Any

from ownwords.archive.report import Duplicate, PostSummary, Report
from ownwords.archive.report import formatting as say
from ownwords.archive.report.beside import PAIRS, PASSAGES, marked
from ownwords.archive.report.figures import average, totals
from ownwords.serve.api.report_cache import CachedReport

LONGEST = 10  # texts that have a slice of their own
_FIGURE = ("figure", "label", "note")
_MANY = 40  # findings of one kind that are sent at once
_TONES = {"Your own words": "own", "Quoted": "k1", "Code": "k2", "Logs and dumps": "k3"}
_SIDES = {"train": "Training", "validation": "Validation", "test": "Test"}
_DRAWN = {"random": "Drawn by lot", "by date": "The latest by date"}


def facts(known: CachedReport) -> dict[str, Any]:
    """Everything but the lines of all texts, which come a page at a time."""
    report = known.report
    lede, follow = say.lede(report)
    return {
        "name": say.name(report),
        "lede": lede,
        "follow": follow,
        "sources": [
            {
                "path": say.plain(one.path),
                "seen_as": say.plain(one.seen_as, 160),
                "documents": one.documents,
            }
            for one in report.sources[:12]
        ],
        "totals": [dict(zip(_FIGURE, one, strict=True)) for one in totals(report)],
        "average": average(report),
        "advice": asdict(report.advice),
        "decided": len(say.decided(report)),
        "lengths": _lengths(report),
        "kinds": [
            {"label": name, "value": words, "tone": _TONES.get(name, "k4")}
            for name, words in say.kinds(report)
        ],
        "dumps": _some(
            [
                asdict(one)
                | {"title": say.title_of(one.title), "first_line": say.plain(one.first_line, 200)}
                | {"reason": say.sentence(one.reason)}
                for one in report.dumps
            ]
        ),
        "years": _years(report),
        "twice": {"total": len(report.duplicates), "rows": [_pair(p) for p in _pairs(report)]},
        "unlike": _some(
            [
                {"id": one.id, "title": say.title_of(one.title), "words": one.words}
                | {"signs": say.evidence(one)}
                for one in report.unlike
            ]
        ),
        "links": _links(report, known),
        "phrases": _phrases(report),
        "left_out": [
            {"what": say.count(number, what), "reason": reason, "titles": titles[:_MANY]}
            | {"more": max(0, len(titles) - _MANY)}
            for what, reason, number, titles in say.by_reason(report.left_out)
        ],
        "splits": _splits(report),
        "privacy": _privacy(report),
        "notes": [say.plain(one) for one in report.notes[:_MANY]],
        "made": f"Read by ownwords {say.plain(report.version, 30)} on {say.day(report.made_on)}.",
        "fingerprint": say.plain(report.fingerprint)[:12],
        "command": say.plain(report.command),
    }


def _some(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"total": len(rows), "rows": rows[:_MANY]}


def _lengths(report: Report) -> dict[str, Any]:
    longest, others = report.posts[:LONGEST], report.posts[LONGEST:]

    def slices(of: list[tuple[PostSummary, int]], rest: int) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = [
            {
                "label": say.title_of(post.title),
                "value": words,
                "tone": "out" if post.decision == "leave out" else "own",
                "strength": round(1 - 0.06 * rank, 2),
            }
            for rank, (post, words) in enumerate(of)
            if words
        ]
        if rest:
            label = say.count(len(others), "other")
            made.append({"label": label, "value": rest, "tone": "rest"})
        return made

    changed = any(post.decision != "keep" for post in report.posts)
    used = [(post, post.training_words) for post in longest]
    return {
        "evenness": say.evenness(report),
        "found": slices([(p, p.own_words) for p in longest], sum(p.own_words for p in others)),
        "used": slices(used, sum(p.training_words for p in others)) if changed else [],
        "longest": [
            {"id": p.id, "title": say.title_of(p.title), "day": p.day, "own_words": p.own_words}
            | {"share": p.share, "decision": p.decision, "decided": say.decision(p)}
            for p in longest
        ],
        "others": {
            "count": len(others),
            "own_words": sum(p.own_words for p in others),
            "share": sum(p.share for p in others),
        },
    }


def _years(report: Report) -> dict[str, Any]:
    dated = {year.year: year for year in report.years if year.year}
    if not dated:
        return {"sentence": "", "undated": say.undated(report), "columns": []}
    out: dict[int, int] = {}
    for post in report.posts:
        # The years count posts alone, so pages stay out here too.
        if post.kind == "post" and post.decision == "leave out" and post.day[:4].isdecimal():
            out[int(post.day[:4])] = out.get(int(post.day[:4]), 0) + post.own_words
    most = max(dated.values(), key=lambda year: year.words)
    sentence = (
        f"{most.year} was your longest year: {say.count(most.words, 'word')} "
        f"in {say.count(most.posts, 'post')}."
    )
    first, last = min(dated), max(dated)
    # Silent years are part of the story, unless a stray date would open a gap of centuries.
    span = range(first, last + 1) if last - first < 60 else sorted(dated)
    return {
        "sentence": sentence if len(dated) > 1 else "",
        "undated": say.undated(report),
        "columns": [
            {
                "year": year,
                "posts": dated[year].posts if year in dated else 0,
                "words": dated[year].words if year in dated else 0,
                "out": out.get(year, 0),
            }
            for year in span
        ],
    }


def _pairs(report: Report) -> list[Duplicate]:
    return report.duplicates[:PAIRS]


def _pair(pair: Duplicate) -> dict[str, Any]:
    said = f"{say.percent(pair.share)} of the shorter text also stands in the longer one."
    return {
        "id": pair.id,
        "other_id": pair.other_id,
        "title": say.title_of(pair.title),
        "other_title": say.title_of(pair.other_title),
        "said": "The same text, word for word." if pair.exact else said,
        "passages": [marked(one, other) for one, other in pair.passages[:PASSAGES]],
    }


def _links(report: Report, known: CachedReport) -> dict[str, Any]:
    dead = len(report.dead_links)
    if dead:
        verb = "leads" if dead == 1 else "lead"
        said = f"{say.count(dead, 'link')} from post to post {verb} nowhere."
    elif report.totals.internal_links:
        said = "Every link from one of your posts to another arrives."
    else:
        said = "Your posts do not link to each other."
    titles = {id_: report.posts[place].title for id_, place in known.places.items()}
    return {
        "said": said,
        "dead": _some(
            [
                {"id": one.id, "title": say.title_of(one.title), "text": say.plain(one.text, 120)}
                | {"address": say.address(one)}
                for one in report.dead_links
            ]
        ),
        "alone": say.orphans(report),
        "orphans": _some(
            [{"id": one, "title": say.title_of(titles.get(one, ""))} for one in report.orphans]
        ),
    }


def _phrases(report: Report) -> dict[str, Any]:
    years = say.by_year(report.phrases)
    overall = years.pop(0, [])
    return {
        "overall": [
            {"text": say.plain(one.text, 80), "count": one.count, "posts": one.posts}
            for one in overall[:16]
        ],
        "years": [
            {"year": year, "phrases": [[say.plain(one.text, 80), one.count] for one in found[:6]]}
            for year, found in years.items()
        ],
    }


def _splits(report: Report) -> list[dict[str, Any]]:
    made = []
    for split in report.splits:
        total = sum(split.words.values())
        made.append(
            {
                "name": _DRAWN.get(split.name, say.plain(split.name, 30).capitalize()),
                "sides": [
                    {
                        "side": side,
                        "label": label,
                        "posts": split.posts.get(side, 0),
                        "value": split.words.get(side, 0),
                        "tone": tone,
                        "note": say.percent(say.ratio(split.words.get(side, 0), total)),
                    }
                    for (side, label), tone in zip(_SIDES.items(), ("own", "k1", "k2"), strict=True)
                ],
            }
        )
    return made


def _privacy(report: Report) -> dict[str, Any]:
    privacy = report.privacy
    lines = [("Sources read", len(report.sources))]
    lines += [
        (f"{say.status(name)}, not taken in", number)
        for name, number in privacy.statuses_excluded.items()
    ]
    lines += [
        ("E-mail addresses found", privacy.emails),
        ("Phone numbers found", privacy.phones),
        ("Network calls made", privacy.network_calls),
    ]
    return {
        "lines": [(name, say.count(number) if number else "none") for name, number in lines],
        "found": [(say.title_of(title), masked) for title, masked in privacy.found_in[:_MANY]],
    }
