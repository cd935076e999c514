"""Bases side by side through `ownwords make`: the results on the same blogs, and the cost.

    python bench/bases.py                                     the sample blog and the columnist
    python bench/bases.py BLOG... --minutes 4                 other blogs
    python bench/bases.py --base shipped gemma3-270m --workspace FOLDER    keeps what was made there

Each make is a separate process, whose seconds and peak memory are measured; the bases of a blog run
one after the other. Bits per byte are those of the scorecard, on posts that neither training nor
the choice of weights has read. A base that is not installed is reported as missing.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.corpora import make_row
from bench.fresh import ROOT, SHARED, own_peak_mb, run
from bench.machine import measuring

BLOGS = (ROOT / "examples" / "blog", SHARED / "columnist")
BASES = ("shipped", "smollm2-135m", "gemma3-270m")
_COLUMNS = (
    "blog, base",
    "plan",
    "untouched",
    "tuned",
    "gain",
    "read",
    "make, scoring (s)",
    "peak, model (MB)",
    "verdict",
)


@measuring()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("blogs", nargs="*", type=Path, default=BLOGS)
    parser.add_argument("--base", nargs="+", default=BASES)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)  # one blog, in here
    args = parser.parse_args()
    if args.make:
        figures_row = make_row(args.make, args.workspace, args.minutes, args.base[0])
        print(json.dumps(figures_row | {"peak_mb": own_peak_mb()}))
        return 0
    missing = [str(path) for path in args.blogs if not path.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} not there")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ownwords-bench-") as scratch:
        scratch_workspace = (args.workspace or Path(scratch)).resolve()
        print("| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS), flush=True)
        for blog in args.blogs:
            for base in args.base if str(blog) not in missing else ():
                workspace = scratch_workspace / f"{blog.name}-{Path(base).name}.ownwords"
                options = ["--make", str(blog), "--workspace", str(workspace), "--base", base]
                ran = run("bases", *options, "--minutes", f"{args.minutes:g}")
                name = f"{blog.name}, {Path(base).name}"
                if "crash" in ran.figures or "error" in ran.figures:
                    print(f"| {name} | {ran.figures.get('crash') or ran.figures['error']} |")
                    failed += "crash" in ran.figures
                    continue
                row = figures(ran.figures, workspace / "model")
                print(f"| {name} | {' | '.join(row)} |", flush=True)
    return failed


def figures(row: Mapping[str, Any], model: Path) -> list[str]:
    """Return the columns of a make, after its name."""
    plan, seconds, bits = row["plan"], row["seconds"], row.get("bits", {})
    from ownwords.evaluation.scorecard import BASE, OURS

    rank, rate = plan.get("lora.rank"), plan["optim.learning_rate"]
    method = f"LoRA {rank}" if rank else "all weights"
    base, ours = bits.get(BASE), bits.get(OURS)
    spent = sum(seconds[name] for name in ("train", "write"))
    disk = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    return [
        f"{method}, {row['steps']} x {plan['train.batch_size']} x {plan['train.sequence_length']},"
        f" {rate:g}",
        f"{base:.3f}" if base else "",
        f"{ours:.3f}" if ours else "",
        f"{1 - ours / base:.1%}" if base and ours else "",
        f"{row['readings']:g}",
        f"{spent:.0f}, {seconds.get('score', 0):.0f}",
        f"{row['peak_mb']:,.0f}, {disk:,.0f}",
        row.get("verdict", [""])[0],
    ]


if __name__ == "__main__":
    sys.exit(main())
