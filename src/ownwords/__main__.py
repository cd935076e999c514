"""`python -m ownwords` is `ownwords`."""

from ownwords.cli.main import run

if __name__ == "__main__":
    run()
