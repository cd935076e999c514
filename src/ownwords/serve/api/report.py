"""Converts the report to JSON, with the figures and texts of report.html."""

from dataclasses import asdict
from typing import Any

from ownwords.archive.report import Duplicate, Report, summary
from ownwords.archive.report import formatting as fmt
from ownwords.archive.report.summary import LONGEST, PAIRS, PASSAGES, SIDES
from ownwords.serve.report_cache import CachedReport

_MAX_ROWS = 40  # maximum number of findings of each kind


def report_json(cached: CachedReport) -> dict[str, Any]:
    """The report without the rows of the posts, which `api/posts.py` returns in pages."""
    report = cached.report
    lede, follow = summary.lede(report)
    return {
        "name": summary.name(report),
        "lede": lede,
        "follow": follow,
        "sources": [
            {
                "path": fmt.plain(source.path),
                "detected_as": fmt.plain(source.detected_as, 160),
                "documents": source.documents,
            }
            for source in report.sources[:12]
        ],
        "totals": [figure._asdict() for figure in summary.headline_figures(report)],
        "average": summary.average(report),
        "advice": asdict(report.advice),
        "decided": len(summary.notable_posts(report)),
        "lengths": _lengths(report),
        "kinds": [kind._asdict() for kind in summary.word_kinds(report)],
        "dumps": _capped(
            [
                asdict(dump)
                | {"title": fmt.title_of(dump.title), "first_line": fmt.plain(dump.first_line, 200)}
                | {"reason": fmt.sentence(dump.reason)}
                for dump in report.dumps
            ]
        ),
        "years": _years(report),
        "twice": {
            "total": len(report.duplicates),
            "rows": [_pair(p) for p in report.duplicates[:PAIRS]],
        },
        "unlike": _capped(
            [
                {"id": post.id, "title": fmt.title_of(post.title), "words": post.words}
                | {"signs": summary.style_signs(post)}
                for post in report.style_outliers
            ]
        ),
        "links": _links(report),
        "phrases": _phrases(report),
        "left_out": [
            {"what": fmt.count(number, what), "reason": reason, "titles": titles[:_MAX_ROWS]}
            | {"more": max(0, len(titles) - _MAX_ROWS)}
            for what, reason, number, titles in summary.exclusion_reasons(report.excluded)
        ],
        "split": _split(report),
        "privacy": {
            "lines": summary.privacy_lines(report),
            "found": [
                (fmt.title_of(title), masked)
                for title, masked in report.privacy.found_in[:_MAX_ROWS]
            ],
        },
        "notes": [fmt.plain(note) for note in report.notes[:_MAX_ROWS]],
        "created": (
            f"Read by ownwords {fmt.plain(report.version, 30)} on {fmt.day(report.created_on)}."
        ),
        "fingerprint": fmt.plain(report.fingerprint)[:12],
    }


def _capped(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"total": len(rows), "rows": rows[:_MAX_ROWS]}


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
        "extent": summary.duplicate_extent(pair),
        "passages": [summary.diff_passages(*passages) for passages in pair.passages[:PASSAGES]],
    }


def _links(report: Report) -> dict[str, Any]:
    titles = {post.id: post.title for post in report.posts}
    return {
        "sentence": summary.internal_links(report),
        "dead": _capped(
            [
                {
                    "id": link.id,
                    "title": fmt.title_of(link.title),
                    "text": fmt.plain(link.text, 120),
                }
                | {"address": summary.link_target(link)}
                for link in report.dead_links
            ]
        ),
        "alone": summary.orphans(report),
        "orphans": _capped(
            [{"id": id_, "title": fmt.title_of(titles.get(id_, ""))} for id_ in report.orphans]
        ),
    }


def _phrases(report: Report) -> dict[str, Any]:
    years = summary.phrases_by_year(report.phrases)
    overall = years.pop(0, [])
    return {
        "overall": [
            {"text": fmt.plain(phrase.text, 80), "count": phrase.count, "posts": phrase.posts}
            for phrase in overall[:16]
        ],
        "years": [
            {"year": year, "phrases": [[fmt.plain(x.text, 80), x.count] for x in phrases[:6]]}
            for year, phrases in years.items()
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
