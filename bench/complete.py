"""Finishing sentences: how many of the next words are right, and how soon the first arrives.

    python -m bench.complete WORKSPACE                  both figures, for its model and its base
    python -m bench.complete WORKSPACE --places 2000    at more places
    python -m bench.complete WORKSPACE --only speed     one of them: right, speed

WORKSPACE was made by `ownwords make`. A server is started, and gets requests as from an editor.

"right": at evenly spaced places in all held-out posts (the test side of the archive, which training
has never seen), each model gets the text before the place. The WORDS words that it writes next at
temperature 0 are compared with the author's, position by position. The interval of the ratio is
computed over posts.

"speed": a text of 1,000 words or more, of one or several posts, is opened and read for the first
time, then continued word by word; then a word in its middle is changed, and it is continued again.
Prints milliseconds from the request to the first piece of the suggestion, as median and slowest
tenth, without the page's own pause. Every second request is dropped after its first piece, as by a
user who goes on typing.
"""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.machine import measuring

from ownwords.archive.corpus import load_corpus
from ownwords.archive.store import Archive
from ownwords.evaluation.intervals import ratio_interval

WORDS, MOST_TOKENS = 3, 12
FIXED = {"sentence": True, "temperature": 0, "max_tokens": MOST_TOKENS}
PLACES = 600
OPENING = 20  # words of a post that are always given
LONG, TYPED = 1000, 40  # words of the text that is continued, and how many are typed
MOST = 8_000  # characters of a text that are sent: they fit any context of 4,096 tokens
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@contextmanager
def serving(workspace: Path) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to a server of the workspace."""
    command = [sys.executable, "-m", "ownwords", "serve", str(workspace), "--port", "0", "--no-key"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r":(\d+)/", process.stdout.readline())
        assert match
        try:
            yield http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=600)
        finally:
            process.terminate()


def post(server: http.client.HTTPConnection, path: str, body: object) -> http.client.HTTPResponse:
    headers = {"Content-Type": "application/json", "X-Ownwords": "1"}
    server.request("POST", path, json.dumps(body), headers)
    answer = server.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.read().decode()}")
    return answer


def completed(server: http.client.HTTPConnection, model: str, text: str) -> str:
    """Return what the model writes after the text."""
    cut = -(-max(0, len(text) - MOST) // (MOST // 2)) * (MOST // 2)  # seldom moves
    answer = post(server, "/v1/completions", {"model": model, "prompt": text[cut:], **FIXED})
    return str(json.load(answer)["choices"][0]["text"])


def right(
    server: http.client.HTTPConnection, models: Sequence[str], posts: Sequence[str], places: int
) -> None:
    """Print how many of the next words each model has right."""
    marks = [list(_WORD.finditer(text)) for text in posts]
    count = sum(max(0, len(words) - OPENING - WORDS) for words in marks)
    step = max(1, count // places)
    hits = {model: [0] * len(posts) for model in models}
    asked = [0] * len(posts)
    for n, (text, words) in enumerate(zip(posts, marks, strict=True)):
        for at in range(OPENING, len(words) - WORDS, step):
            expected = [word[0].casefold() for word in words[at : at + WORDS]]
            asked[n] += WORDS
            for model in models:
                written = _WORD.findall(completed(server, model, text[: words[at].start()]))
                pairs = zip(expected, map(str.casefold, written), strict=False)
                hits[model][n] += sum(one == other for one, other in pairs)
        shown = " and ".join(str(hits[model][n]) for model in models)
        print(f"  a post of {len(words):,} words: {shown} of {asked[n]} right", flush=True)
    for model in models:
        print(f"{model}: {sum(hits[model]) / sum(asked):.1%} of {sum(asked):,} words right")
    ours, base = (hits[model] for model in models)
    interval = ratio_interval(ours, base)
    reach = f" ({interval.low:.2f} to {interval.high:.2f}, by posts)" if interval else ""
    print(f"{models[0]} has {sum(ours) / sum(base):.2f} x as many as {models[1]}{reach}")


def first_ms(server: http.client.HTTPConnection, model: str, text: str, *, leaves: bool) -> float:
    """Return the milliseconds until the first piece of a suggestion, even an empty one."""
    began = time.perf_counter()
    asked = {"model": model, "prompt": text, "stream": True, **FIXED}
    answer = post(server, "/v1/completions", asked)
    shown = 0.0
    while line := answer.readline():
        if line.startswith(b"data: ") and not shown:
            shown = time.perf_counter() - began
            if leaves:
                server.close()
                break
    answer.read()
    return 1000 * shown


def speed(server: http.client.HTTPConnection, model: str, text: str) -> None:
    """Print how soon the first piece arrives."""
    words = list(_WORD.finditer(text))[: LONG + TYPED]
    typed = [text[: word.end()] for word in words[LONG:]]
    print(f"{model}, after {LONG:,} words:")
    opened = first_ms(server, model, text[: words[LONG].start()], leaves=False)
    print(f"  opened {opened:.0f} ms")
    middle = words[LONG // 2]
    for name, change in (("typed on", ""), ("typed on after an edit in the middle", " indeed")):
        times = []
        for n, before in enumerate(typed):
            edited = before[: middle.end()] + change + before[middle.end() :]
            times.append(first_ms(server, model, edited, leaves=n % 2 == 1))
        first, *others = times
        slowest = statistics.quantiles(others, n=10)[-1]
        print(
            f"  {name}: first {first:.0f} ms, then {statistics.median(others):.0f}, {slowest:.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--places", type=int, default=PLACES)
    parser.add_argument("--only", choices=("right", "speed"))
    args = parser.parse_args()
    corpus = load_corpus(Archive(args.workspace / "archive.sqlite"))
    posts = [text.text for text in corpus.test]
    with serving(args.workspace) as server:
        server.request("GET", "/api/write")
        offered = json.load(server.getresponse())["models"]
        roles = {item["role"]: item["name"] for item in offered}
        models = [roles["tuned"], roles["base"]]
        for model in models:
            completed(server, model, "It is loaded.")
        if args.only != "speed":
            right(server, models, posts, args.places)
        if args.only != "right":
            speed(server, models[0], "\n\n".join(posts))


if __name__ == "__main__":
    with measuring():
        main()
