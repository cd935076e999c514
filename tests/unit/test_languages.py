"""The catalogues of the page's languages, and how sentences are found in the code."""

import ast
import json
from types import ModuleType

import pytest

import scripts


@pytest.fixture(scope="module")
def sentences() -> ModuleType:
    return scripts.load("docs/sentences.py")


def test_every_catalogue_has_every_sentence_of_the_page_and_no_other(sentences: ModuleType) -> None:
    paths = list(sentences.LANGUAGES.glob("*.json"))
    assert {path.stem for path in paths} >= {"de"}
    for path in paths:
        assert sentences.lacking(path.stem) == ([], []), (
            f"see: python docs/sentences.py {path.stem}"
        )


def test_a_translation_has_no_place_that_its_sentence_has_not(sentences: ModuleType) -> None:
    for path in sentences.LANGUAGES.glob("*.json"):
        for sentence, entry in json.loads(path.read_text("utf-8")).items():
            forms = entry if isinstance(entry, dict) else {"other": entry}
            assert "other" in forms, sentence
            places = set(sentences.PLACE.findall(sentence))
            assert not [
                form for form in forms.values() if {*sentences.PLACE.findall(form)} - places
            ]
            assert all(form.strip() for form in forms.values()), sentence


def test_sentences_are_found_in_scripts_pages_and_modules(sentences: ModuleType) -> None:
    script = """
      const at = t`Drop ${names.map((name) => `${name}`).join(", ")} here, ${n ? t`or there` : ""}`;
      p(count(list.filter((each) => each).length, "post"), t`It\\`s \\n over`, "never");
    """
    found = set(sentences._of_script(script))
    assert found == {"Drop {1} here, {2}", "or there", "It`s \n over", "{1} post"}
    page = '<a title="Your blogs">Skip <b>it</b></a><style></style>'
    assert sentences._of_page(page) == ["Your blogs", "Skip", "it"]
    module = '''"""A docstring of many words."""
def told(n, names, word):
    """Another of them."""
    key = "not_a_sentence"
    lines = [f"{count(n, 'word')} of {n:,} are {'left out there' if n else ''}", "Learn {what} now"]
    return Figure("Words", *lines)
'''
    found = set(sentences._of_module(ast.parse(module), has_labels=False))
    assert found == {"{1} of {2} are {3}", "left out there", "{1} word", "Learn {1} now"}
    assert set(sentences._of_module(ast.parse(module), has_labels=True)) == found | {"Words"}


def test_sentences_of_errors_are_found_in_the_variables_and_functions_that_they_name(
    sentences: ModuleType,
) -> None:
    module = """
hint = "give it a name"
other = "nobody ever sees this"
def _why(name) -> str:
    return f"{name} is taken"
raise OwnwordsError("there is no name", hint=_why(name) if name else hint)
"""
    shown = sentences._shown(ast.parse(module))
    found = {text for node in shown for text in sentences._of_module(node, has_labels=False)}
    assert found == {"there is no name", "give it a name", "{1} is taken"}
