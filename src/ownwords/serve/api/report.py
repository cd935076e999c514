"""The report as the page shows it: the same figures and the same words as report.html."""

from dataclasses import asdict
from typing import Any

from ownwords.archive.report import Duplicate, Report, summary
from ownwords.archive.report import formatting as fmt
from ownwords.archive.report.summary import LONGEST, PAIRS, PASSAGES, SIDES
from ownwords.serve.api.report_cache import CachedReport

_MANY = 40  # findings of one kind that are sent at once


def report_json(cached: CachedReport) -> dict[str, Any]:
    """Everything but the lines of all texts, which come a page at a time."""
    report = cached.report
    lede, follow = summary.lede(report)
    return {
        "name": summary.name(report),
        "lede": lede,
        "follow": follow,
        "sources": [
            {
                "path": fmt.plain(one.path),
                "seen_as": fmt.plain(one.detected_as, 160),
                "documents": one.documents,
            }
            for one in report.sources[:12]
        ],
        "totals": [figure._asdict() for figure in summary.headline_figures(report)],
        "average": summary.average(report),
        "advice": asdict(report.advice),
        "decided": len(summary.notable_posts(report)),
        "lengths": _lengths(report),
        "kinds": [kind._asdict() for kind in summary.word_kinds(report)],
        "dumps": _some(
            [
                asdict(one)
                | {"title": fmt.title_of(one.title), "first_line": fmt.plain(one.first_line, 200)}
                | {"reason": fmt.sentence(one.reason)}
                for one in report.dumps
            ]
        ),
        "years": _years(report),
        "twice": {
            "total": len(report.duplicates),
            "rows": [_pair(p) for p in report.duplicates[:PAIRS]],
        },
        "unlike": _some(
            [
                {"id": one.id, "title": fmt.title_of(one.title), "words": one.words}
                | {"signs": summary.style_signs(one)}
                for one in report.style_outliers
            ]
        ),
        "links": _links(report, cached),
        "phrases": _phrases(report),
        "left_out": [
            {"what": fmt.count(number, what), "reason": reason, "titles": titles[:_MANY]}
            | {"more": max(0, len(titles) - _MANY)}
            for what, reason, number, titles in summary.exclusion_reasons(report.excluded)
        ],
        "split": _split(report),
        "privacy": {
            "lines": summary.privacy_lines(report),
            "found": [
                (fmt.title_of(title), masked) for title, masked in report.privacy.found_in[:_MANY]
            ],
        },
        "notes": [fmt.plain(one) for one in report.notes[:_MANY]],
        "made": (
            f"Read by ownwords {fmt.plain(report.version, 30)} on {fmt.day(report.created_on)}."
        ),
        "fingerprint": fmt.plain(report.fingerprint)[:12],
        "command": fmt.plain(report.command),
    }


def _some(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"total": len(rows), "rows": rows[:_MANY]}


def _lengths(report: Report) -> dict[str, Any]:
    longest, others = report.posts[:LONGEST], report.posts[LONGEST:]
    used = summary.shares(report, training=True) if summary.is_selected(report) else []
    return {
        "evenness": summary.evenness(report),
        "found": [share._asdict() for share in summary.shares(report)],
        "used": [share._asdict() for share in used],
        "longest": [
            {"id": p.id, "title": fmt.title_of(p.title), "day": p.day, "own_words": p.own_words}
            | {"share": p.share, "decision": p.decision, "decided": summary.decision(p)}
            for p in longest
        ],
        "others": {
            "count": len(others),
            "own_words": sum(p.own_words for p in others),
            "share": sum(p.share for p in others),
        },
    }


def _years(report: Report) -> dict[str, Any]:
    bars = summary.year_bars(report)
    return {
        "sentence": summary.longest_year(bars),
        "undated": summary.undated(report),
        "columns": [
            {"year": bar.year, "posts": bar.posts, "words": bar.words, "out": bar.left_out}
            for bar in bars
        ],
    }


def _pair(pair: Duplicate) -> dict[str, Any]:
    return {
        "id": pair.id,
        "other_id": pair.other_id,
        "title": fmt.title_of(pair.title),
        "other_title": fmt.title_of(pair.other_title),
        "said": summary.duplicate_extent(pair),
        "passages": [summary.diff_passages(*passages) for passages in pair.passages[:PASSAGES]],
    }


def _links(report: Report, cached: CachedReport) -> dict[str, Any]:
    titles = {id_: report.posts[place].title for id_, place in cached.positions.items()}
    return {
        "said": summary.internal_links(report),
        "dead": _some(
            [
                {"id": one.id, "title": fmt.title_of(one.title), "text": fmt.plain(one.text, 120)}
                | {"address": summary.link_target(one)}
                for one in report.dead_links
            ]
        ),
        "alone": summary.orphans(report),
        "orphans": _some(
            [{"id": one, "title": fmt.title_of(titles.get(one, ""))} for one in report.orphans]
        ),
    }


def _phrases(report: Report) -> dict[str, Any]:
    years = summary.phrases_by_year(report.phrases)
    overall = years.pop(0, [])
    return {
        "overall": [
            {"text": fmt.plain(one.text, 80), "count": one.count, "posts": one.posts}
            for one in overall[:16]
        ],
        "years": [
            {"year": year, "phrases": [[fmt.plain(one.text, 80), one.count] for one in found[:6]]}
            for year, found in years.items()
        ],
    }


def _split(report: Report) -> list[dict[str, Any]]:
    posts, words = report.split.posts, report.split.words
    total = sum(words.values())
    return [
        {
            "side": side,
            "label": label,
            "posts": posts.get(side, 0),
            "value": words.get(side, 0),
            "tone": tone,
            "note": fmt.percent(fmt.ratio(words.get(side, 0), total)),
        }
        for (side, label), tone in zip(SIDES.items(), ("own", "k1", "k2"), strict=True)
        if total
    ]
