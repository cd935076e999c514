"""How fast the page's API answers with 10,000 posts.

    .venv/bin/python bench/endpoints.py FOLDER

writes a blog of random words and its workspace into FOLDER, unless they are there, and prints the
first answer of each endpoint and the fastest of five more.
"""

import argparse
import random
import time
from pathlib import Path

from starlette.testclient import TestClient

from ownwords.archive.look import look
from ownwords.core.workspace import Workspace
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.serve.settings import ServeSettings

POSTS, WORDS = 10_000, 80
PATHS = (
    *("home", "blog", "sources", "models", "exports", "jobs", "texts", "workspaces", "machine"),
    *("corpus/posts", "corpus/posts?first=9900&sort=title", "corpus/facets"),
)


def write_blog(folder: Path) -> None:
    """Write posts of random words."""
    folder.mkdir(parents=True)
    generator = random.Random(1)
    words = [f"w{n}" for n in range(5000)]
    for n in range(POSTS):
        head = f"---\ntitle: Post {n}\ndate: {2000 + n % 25}-0{1 + n % 9}-11\n---\n\n"
        text = " ".join(generator.choices(words, k=WORDS))
        (folder / f"{n}.md").write_text(f"{head}{text}.\n")


def main(folder: Path) -> None:
    """Print the table."""
    blog, workspace = folder / "blog", folder / "ten.ownwords"
    if not workspace.exists():
        write_blog(blog)
        look([blog], workspace=workspace)
    app = create_app(AppState(Workspace(workspace), ServeSettings(key=""), sources=(blog,)))
    with TestClient(app, base_url="http://127.0.0.1:8377") as client:
        for path in PATHS:
            times = []
            for _ in range(6):
                began = time.perf_counter()
                client.get(f"/api/{path}").raise_for_status()
                times.append(1000 * (time.perf_counter() - began))
            print(f"/api/{path:36} first {times[0]:7.1f} ms, then {min(times[1:]):6.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)
