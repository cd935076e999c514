"""Short runs of several sizes, shares and row lengths, to choose the base from.

    python base/sizes.py --folder base.ownwords --sizes 3e6 6e6 10e6 --computing 5e13
    python base/sizes.py --folder base.ownwords --sizes 3e6 --shares .25 .5 .75 --tokens 2e6
    python base/sizes.py --folder base.ownwords --shares .25 --last-shares .75    modern prose last

Each reads the texts that `build.py prepare` encoded, decays its rate to 0 over the second half, and
is measured on the held-out texts at its end. For another vocabulary, copy `texts` to another folder
and run `prepare --vocabulary` there: the texts are not cleaned again.
"""

import argparse
import itertools
import sys
from contextlib import closing
from pathlib import Path

if __package__ in (None, ""):
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import pretraining
from ownwords.core.errors import OwnwordsError
from ownwords.core.progress import Progress


def main() -> int:
    """Train each in turn, and print a line of figures for it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("base.ownwords"))
    parser.add_argument("--sizes", type=float, nargs="+", default=[3e6])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5])
    parser.add_argument(
        "--last-shares", type=float, nargs="+", default=[None], help="of the second half"
    )
    parser.add_argument("--contexts", type=int, nargs="+", default=[512])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.02])
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--tokens", type=float, help="read by each, rather than --computing")
    parser.add_argument("--computing", type=float, default=5e13, help="parameters times tokens")
    args = parser.parse_args()
    for size, share, context, rate, last_share in itertools.product(
        args.sizes, args.shares, args.contexts, args.rates, args.last_shares
    ):
        tokens = args.tokens or args.computing / size
        chosen = pretraining.BaseSettings(
            parameters=size,
            context=context,
            rows=args.step_tokens // context,
            modern_share=share,
            muon_lr=rate,
            expected_tokens=tokens,
        )
        with closing(pretraining.Pretraining(args.folder, chosen, Progress())) as run:
            last = share if last_share is None else last_share
            trial = run.trial(tokens, last)
            vocabulary = run.tokenizer.vocabulary_size
        print(
            f"{trial.parameters / 1e6:.1f}M parameters, {vocabulary:,} tokens of vocabulary,"
            f" {tokens / 1e6:.1f}M read, {share:.0%} modern, then {last:.0%}, rows of {context},"
            f" rate {rate:g}, {trial.seconds:.0f} s:"
            f" modern {trial.modern:.4f}, books {trial.books:.4f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OwnwordsError as error:
        sys.exit(f"{error.message}\n{error.hint}".rstrip())
