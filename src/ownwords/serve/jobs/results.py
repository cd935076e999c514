"""What the page shows of a job's result, out of what its command has printed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ownwords.serve.jobs.requests import JobKind


def job_result(kind: JobKind, printed: Mapping[str, Any]) -> Mapping[str, Any]:
    """The few fields of a command's JSON that tell how it went."""
    if kind in ("make", "score"):
        card = printed.get("scorecard") if kind == "make" else printed
        verdict = card.get("verdict", {}) if isinstance(card, Mapping) else {}
        return {"sentence": str(verdict.get("sentence", ""))}
    if kind == "tune":
        sentences = printed.get("sentences") or [""]
        return {"sentence": str(sentences[0])}
    if kind == "export":
        path = Path(str(printed["path"]))
        written = {key: printed[key] for key in ("path", "bytes", "type")}
        return {**written, "name": path.name, "to": printed["form"]}
    if kind == "base":
        return {"name": str(printed["name"])}
    if kind == "fetch":
        return {key: printed[key] for key in ("path", "name", "label", "posts")}
    return {}
