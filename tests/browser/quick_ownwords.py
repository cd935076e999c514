"""`ownwords` itself, but that a quick making scores a little text instead of much.

A job of the page runs it in the command line's place; `QUICK` are the settings of its training.
"""

import sys

QUICK = ("train.steps=6", "train.batch_size=4", "train.sequence_length=64", "train.evaluations=1")


def _main(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from ownwords.serve import jobs

        jobs.PROGRAM = (sys.executable, __file__)
    elif arguments[:1] == ["make"]:
        from ownwords.evaluation.scoring import ScoreConfig
        from ownwords.make import pipeline, stages

        arguments = [*arguments, *(f"--set={setting}" for setting in QUICK)]
        stages._QUICK_SCORING = ScoreConfig(
            max_posts=3,
            max_bytes=3000,
            passages=4,
            seeds=2,
            prompts=1,
            base_samples=1,
            max_tokens=24,
            more_seeds=0,
        )
        vars(pipeline)["MAX_TOKENS"] = 40
    from ownwords.cli.main import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
