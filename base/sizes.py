"""Which size of base suits a given amount of computing: the curve its size is chosen from.

    python base/sizes.py --workspace base.ownwords --sizes 3e6 6e6 10e6 18e6 --computing 5e13

Every size reads as many tokens as make parameters times tokens the same, its rate falling to
nothing at the end, and is asked about the validation books. The workspace is that of `build.py`.
"""

import argparse
import sys
from pathlib import Path

from build import trained
from ownwords.cli.options import DEFAULTS
from ownwords.cli.training_view import watching
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace

ROWS, CONTEXT, VOCABULARY = 16, 512, 8192
_NO_END = 1e6  # seconds: the steps say when it ends


def main() -> int:
    """Train each size in turn; a line of figures for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workspace", type=Path, default=Path("base.ownwords"))
    parser.add_argument("--sizes", type=float, nargs="+", default=[3e6, 6e6, 10e6, 18e6])
    parser.add_argument("--computing", type=float, default=5e13, help="parameters times tokens")
    given = parser.parse_args()
    workspace = Workspace(given.workspace)
    for size in given.sizes:
        steps = round(given.computing / size / (ROWS * CONTEXT))
        fixed = {
            "model.vocab_size": VOCABULARY,
            "model.context_length": CONTEXT,
            "model.parameters": round(size),
            "train.sequence_length": CONTEXT,
            "train.batch_size": ROWS,
            "train.steps": steps,
            "train.evaluations": 1,
        }
        out = workspace.root / "sizes" / f"{size:.0f}"
        with watching(DEFAULTS) as (progress, _, _):
            made = trained(workspace, seconds=_NO_END, fixed=fixed, progress=progress, out=out)
        tokens, bits = made.outcome.tokens, made.bits_per_byte or 0
        print(f"{size / 1e6:.1f}M parameters, {tokens / 1e6:.1f}M tokens: {bits:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OwnwordsError as error:
        sys.exit(f"{error.message}\n{error.hint}".rstrip())
