"""LanguageTool's API: the marks of the page in the right places, and nobody else gets in."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import openai_server
from ownwords.archive.look import look
from ownwords.archive.store import Archive
from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace
from ownwords.drafts.check import AuthorStyle
from ownwords.drafts.rewriting import Habits
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState

KEY = "a-key-that-nobody-knows"
HERE = "http://127.0.0.1:8377"
FOREIGN = "In order to leverage best practices, users should configure appropriate settings."
EXTENSION = "chrome-extension://oldceeleldhonbafppcapldpdifcinji"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def workspace(sample_blog: Path) -> Workspace:
    return Workspace(sample_blog)


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> tuple[AuthorStyle, Habits]:
    with Archive(workspace.archive) as archive:
        return AuthorStyle.of(archive), Habits.of(archive)


def client_of(workspace: Workspace, **settings: object) -> TestClient:
    state = AppState(workspace, openai_server.settings(**settings))
    return TestClient(create_app(state), base_url=HERE)


@pytest.fixture(scope="module")
def client(workspace: Workspace) -> Iterator[TestClient]:
    with client_of(workspace) as client:
        yield client


def matches(client: TestClient, text: str, **fields: str) -> list[dict[str, Any]]:
    answer = client.post("/v2/check", data={"language": "en-GB", "text": text, **fields})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["matches"]
    return found


def annotated_matches(client: TestClient, data: object) -> list[dict[str, Any]]:
    answer = client.post("/v2/check", data={"language": "en", "data": json.dumps(data)})
    found: list[dict[str, Any]] = answer.json()["matches"]
    return found


def rules(found: list[dict[str, Any]]) -> set[str]:
    return {match["rule"]["id"] for match in found}


# --- places ---------------------------------------------------------------------------------------

PROSE = [
    FOREIGN,
    "I don’t know 🎉 “why” it's late, and the kettle is approximately 3 kettles old.",
    "Cafe\u0301 owners 👩‍👩‍👧 leverage n\u0303 synergies in order to optimise outcomes.",
    "Prior to the event, 𝒜ll stakeholders were asked to utilise the platform going forward.",
    "We sat in the kitchen, and it cannot be **said** that it does not matter 🎉 to anybody.",
    "We went down to the harbour in the rain with the two of them and the dog and a flask of tea,"
    " and we stood on the wall 🎉 until the boat had gone out of sight behind the long grey pier.",
    "This *robust* solution does not **only** leverage [best practices](https://a.example/x).",
    "The 5 umbrellas were lost, found, and lost again...",
]
BLOCKS = [
    f"> {FOREIGN}",
    f"```\n{FOREIGN}\n```",
    f"| a | b |\n|---|---|\n| {FOREIGN} | 🎉 |",
    f"    {FOREIGN}",
    f"# {FOREIGN[:-1]} 🎉",
    f"![{FOREIGN}](a.png)",
    f"- {FOREIGN}\n- 🎉 {FOREIGN}",
    f"1. one\n2. {FOREIGN}",
    f"<pre>{FOREIGN}\n\n{FOREIGN}</pre>",
]


def generated(seed: int) -> str:
    draw = random.Random(seed)
    blocks = [
        draw.choice(BLOCKS)
        if draw.random() < 0.4
        else draw.choice(" \n").join(draw.choices(PROSE, k=draw.randint(1, 4)))
        for _ in range(draw.randint(1, 6))
    ]
    head = draw.choice(["", "", "---\ntitle: 🎉 In order to\n---\n\n", "A title 👋\n\n"])
    return (head + "\n\n".join(blocks)).replace("\n", draw.choice(["\n", "\r\n", "\r"]))


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_matches_are_the_marks_of_the_page_in_utf_16(
    client: TestClient, known: tuple[AuthorStyle, Habits]
) -> None:
    style, habits = known
    counted = 0
    for seed in range(40):
        text = generated(seed)
        found = matches(client, text)
        data = text.encode("utf-16-le")
        for match in found:
            start, end = match["offset"], match["offset"] + match["length"]
            marked = data[2 * start : 2 * end].decode("utf-16-le")
            context = match["context"]
            shown = context["text"].encode("utf-16-le")
            begin = context["offset"]
            cut = shown[2 * begin : 2 * (begin + context["length"])].decode("utf-16-le")
            assert cut == marked.replace("\n", " ").replace("\r", " ") != ""
        ends = [match["offset"] + match["length"] for match in found]
        assert all(end <= after["offset"] for end, after in zip(ends, found[1:], strict=False))

        lines = text.replace("\r\n", " \n").replace("\r", "\n")
        edits = [
            (units(text[: edit.start]), units(edit.before), edit.after)
            for edit in habits.edits(lines)
        ]
        assert edits == [
            (match["offset"], match["length"], match["replacements"][0]["value"])
            for match in found
            if match["replacements"]
        ], text
        try:
            sentences = style.check(lines).sentences
        except OwnwordsError:  # no prose
            sentences = ()
        spans = [
            (units(text[: sentence.start]), units(text[: sentence.end]))
            for sentence in sentences
            if sentence.is_marked
        ]
        unlike = [match for match in found if not match["replacements"]]
        assert len(unlike) == len(spans), text
        for match, (start, end) in zip(unlike, spans, strict=True):
            assert start <= match["offset"] < match["offset"] + match["length"] <= end
        counted += len(found)
    assert counted > 100


def test_offsets_count_the_markup_of_an_annotated_text(client: TestClient) -> None:
    parts = [
        {"markup": "<p>🎉", "interpretAs": "\n\n"},
        {"text": FOREIGN[:20]},
        {"markup": "<b>"},
        {"text": FOREIGN[20:]},
        {"markup": "</p>"},
    ]
    more = [{**part, "offset": {"start": 0, "end": 1}} for part in parts]  # as Obsidian sends it
    (mark,) = annotated_matches(client, {"annotation": more})
    assert (mark["offset"], mark["length"]) == (5, len(FOREIGN) + 3)
    assert mark["sentence"] == FOREIGN
    (mark,) = annotated_matches(client, {"text": FOREIGN})
    assert (mark["offset"], mark["length"]) == (0, len(FOREIGN))


def test_an_edit_that_would_remove_markup_is_not_offered(client: TestClient) -> None:
    text = "We asked prior to the match."
    (edit,) = annotated_matches(client, {"text": text})
    assert edit["replacements"] == [{"value": "before"}]
    at = edit["offset"] + 1
    parts = [{"text": text[:at]}, {"markup": "<b>"}, {"text": text[at:]}]
    assert annotated_matches(client, {"annotation": parts}) == []


# --- what a client chooses ------------------------------------------------------------------------


def test_rules_and_categories_can_be_chosen(client: TestClient) -> None:
    text = f"{FOREIGN} She said “no”, and it cannot be."
    marks = {"OWNWORDS_QUOTATION_MARKS", "OWNWORDS_CLOSING_QUOTATION_MARKS"}
    everything = {"OWNWORDS_UNLIKE_YOU", "OWNWORDS_WORDING", *marks}
    only = {"enabledOnly": "true"}
    for fields, expected in [
        ({}, everything),
        ({"disabledRules": "A,OWNWORDS_WORDING"}, everything - {"OWNWORDS_WORDING"}),
        ({"disabledCategories": "STYLE"}, marks),
        ({"disabledCategories": "TYPOGRAPHY,B"}, everything - marks),
        ({**only, "enabledRules": "OWNWORDS_WORDING"}, {"OWNWORDS_WORDING"}),
        ({**only, "enabledCategories": "TYPOGRAPHY"}, marks),
        (only, set()),
        ({"mode": "textLevelOnly"}, set()),
    ]:
        assert rules(matches(client, text, **fields)) == expected, fields


def test_only_the_language_of_the_posts_is_judged(client: TestClient) -> None:
    german = "Um die besten Verfahren zu nutzen, sollten Anwender passende Einstellungen wählen."
    assert matches(client, german, language="auto") == []
    assert matches(client, FOREIGN, language="de-DE") == []
    asked = {"text": FOREIGN, "language": "auto", "preferredVariants": "de-AT,en-NZ"}
    answer = client.get("/v2/check", params=asked).json()
    assert answer["language"]["code"] == "en-NZ"
    assert rules(answer["matches"]) == {"OWNWORDS_UNLIKE_YOU"}
    listed = client.get("/v2/languages").json()
    assert {"name": "English (GB)", "code": "en", "longCode": "en-GB"} in listed
    assert {"de-CH", "fr", "es"} < {each["longCode"] for each in listed}


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"language": "en"}, 400, "Missing 'text' or 'data' parameter"),
        ({"data": "{"}, 400, "JSON"),
        ({"data": '{"annotation": 3}'}, 400, "annotation"),
        ({"text": "word " * 20_001}, 413, "exceeds the limit"),
        ({"text": "🎉" * 40_000}, 413, "too large"),
    ],
)
def test_an_error_is_a_line_of_text(
    client: TestClient, fields: dict[str, str], status: int, problem: str
) -> None:
    answer = client.post("/v2/check", data=fields)
    assert (answer.status_code, answer.text[:7]) == (status, "Error: ")
    assert problem in answer.text


def test_before_posts_are_read_there_is_nothing_to_mark(tmp_path: Path) -> None:
    with client_of(Workspace(tmp_path / "new.ownwords")) as client:
        assert matches(client, FOREIGN) == []


def test_too_few_posts_still_tell_habits(tmp_path: Path) -> None:
    (tmp_path / "posts").mkdir()
    post = "I don't know. I don't care. We don't go. They don't sing. " * 2
    (tmp_path / "posts" / "a.md").write_text(f"---\ntitle: A\n---\n{post}", "utf-8")
    workspace = Workspace(tmp_path / "few.ownwords")
    look([tmp_path / "posts"], workspace=workspace.root)
    with client_of(workspace) as client:
        (match,) = matches(client, "I do not know.")
    assert (match["offset"], match["length"]) == (2, 6)
    assert match["replacements"] == [{"value": "don't"}]
    assert match["sentence"] == "I do not know."


def test_posts_are_not_quoted(client: TestClient, workspace: Workspace) -> None:
    with Archive(workspace.archive) as archive:
        document = next(iter(archive.documents()))
    answer = client.post("/v2/check", data={"language": "en", "text": document.text()[:2000]})
    assert answer.status_code == 200
    assert document.title not in answer.text and document.id not in answer.text


# --- who may ask ----------------------------------------------------------------------------------


def status(client: TestClient, headers: dict[str, str], method: str = "POST", **fields: str) -> int:
    if method == "GET":
        return client.get("/v2/check?text=x", headers=headers).status_code
    return client.post("/v2/check", headers=headers, data={"text": "x", **fields}).status_code


@pytest.mark.parametrize(
    "origin",
    [
        EXTENSION,
        "moz-extension://0e8a4a3c-0000-4000-8000-000000000000",
        "safari-web-extension://0E8A4A3C-0000",
        "app://obsidian.md",
        "vscode-webview://1rqkc5e0q",
    ],
)
def test_add_ons_and_editors_are_answered_here_alone(client: TestClient, origin: str) -> None:
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    answer = client.post("/v2/check", data={"text": "x"}, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "access-control-allow-credentials" not in answer.headers
    asked = {**headers, "Access-Control-Request-Method": "POST"}
    answer = client.options("/v2/check", headers=asked)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, origin)
    assert status(client, {**headers, "Host": "evil.example:8377"}) == 421
    for path in ("/", "/api/home", "/v1/models", "/api/connect", "/v2/other", "/healthz"):
        for method in ("GET", "OPTIONS", "POST"):
            refused = client.request(method, path, headers=asked)
            assert refused.status_code == 403, (method, path)
            assert not [name for name in refused.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"https://evil.example/{EXTENSION}"},
        {"Origin": f"{EXTENSION}.evil.example:80"},
        {"Origin": f"{EXTENSION}, https://evil.example"},
        {"Origin": "chrome-extension://"},
        {"Origin": "app://obsidian.md.evil.example"},
        {"Origin": "app://other"},
        {"Origin": "vscode-webview://a/../https://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example:8377"},
        {"Host": "evil.example:8377", "Origin": "http://evil.example:8377"},
    ],
)
def test_a_hostile_page_gets_nothing(client: TestClient, headers: dict[str, str]) -> None:
    for method in ("POST", "GET", "OPTIONS"):
        for path in ("/v2/check?text=x", "/v2/languages"):
            answer = client.request(method, path, headers={**FORM, **headers})
            assert answer.status_code in (403, 421), (method, path)
            assert answer.text.startswith("Error: ")
            assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data"])
def test_only_forms_are_read(client: TestClient, kind: str) -> None:
    answer = client.post("/v2/check", content=b"text=x", headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert client.post("/v2/check", content=b"text=x").status_code == 200  # as LTeX sends it
    assert client.post("/v1/completions", content=b"{}").status_code == 415


def test_on_this_machine_no_key_is_needed_and_opens_nothing_else(workspace: Workspace) -> None:
    with client_of(workspace, key=KEY) as client:
        assert status(client, {}) == status(client, {}, "GET") == 200
        assert status(client, {"Origin": EXTENSION}) == 200
        for path in ("/api/home", "/v1/models"):
            assert client.get(path).status_code == 401


@pytest.mark.parametrize("reach", [{"host": "0.0.0.0"}, {"names": ("proxy.example",)}])
def test_a_server_that_others_reach_needs_its_key(
    workspace: Workspace, reach: dict[str, Any]
) -> None:
    with client_of(workspace, key=KEY, **reach) as client:
        for headers in ({}, {"Origin": EXTENSION}, {"Authorization": "Bearer no"}):
            assert status(client, headers) == status(client, headers, "GET") == 401
        assert status(client, {}, apiKey=KEY, username="ann") == 200
        assert status(client, {"Authorization": f"Bearer {KEY}"}) == 200
        assert client.get(f"/v2/check?text=x&apiKey={KEY}").status_code == 200
        assert client.get("/v2/languages").status_code == 200
        assert client.get(f"/v1/models?apiKey={KEY}").status_code == 401
        assert client.post("/v1/completions", data={"apiKey": KEY}).status_code == 401
        wrong = [status(client, {}, apiKey=f"wrong{number}") for number in range(12)]
        assert set(wrong) == {401, 429} and wrong[-1] == 429
        assert status(client, {}, apiKey=KEY) == 200
