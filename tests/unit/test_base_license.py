"""Models made from a base carry its licence and notices."""

import json
from pathlib import Path

import pytest

import small_bases
from ownwords.inference.export import export
from ownwords.models import bundle
from ownwords.models.base_license import BaseLicense
from ownwords.tokenizers.byte_tokenizer import ByteTokenizer

FRONT = "license: gemma\nbase_model: google/tiny\nlicense_link: https://terms.example\n"
CARD = f"---\n{FRONT}---\n\n# T\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    small_bases.write(tmp_path / "base")
    (tmp_path / "base" / "README.md").write_text(CARD)
    (tmp_path / "base" / "LICENSE.html").write_text("terms")
    (tmp_path / "base" / "NOTICE").write_text("notice")
    return tmp_path / "base"


def test_a_model_made_of_a_base_carries_its_licence_and_so_does_one_made_of_that(
    base: Path, tmp_path: Path
) -> None:
    for name in ("tuned", "again", "again"):  # the last replaces the one before
        license = BaseLicense.of(base)
        bundle.save(
            tmp_path / name, small_bases.model(), ByteTokenizer(), card="# Mine\n", license=license
        )
        base = tmp_path / name
        card = (base / "README.md").read_text()
        assert "\nlicense: gemma\n" in card and "derives from google/tiny" in card
        assert "https://terms.example" in card and card.count("## License") == 1
        assert "LICENSE.html and NOTICE must go with every copy" in card
        assert (base / "NOTICE").read_text() == "notice"
        provenance = json.loads((base / "ownwords.json").read_bytes())
        assert provenance["derived_from"] == {"model": "google/tiny", "license": "gemma"}


def test_an_exported_directory_keeps_the_licence_files(base: Path, tmp_path: Path) -> None:
    export(base, "hf", out=tmp_path / "out")
    assert (tmp_path / "out" / "LICENSE.html").read_text() == "terms"
    assert (tmp_path / "out" / "README.md").read_text() == CARD


@pytest.mark.parametrize("card", ["", "# No front\nlicense: gemma\n", "---\nlicense: mit\n---\n"])
def test_without_conditions_no_license_text_is_added(card: str, base: Path) -> None:
    (base / "README.md").write_text(card)
    assert BaseLicense.of(base) == BaseLicense()
    assert BaseLicense.of(base).on("# Mine\n") == "# Mine\n"
    assert BaseLicense.of(base).provenance() == {}
