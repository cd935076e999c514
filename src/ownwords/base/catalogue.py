"""Lists, finds and checks bases: the shipped one, added ones, and known ones to download.

Nothing here needs torch if the C++ library is compiled; only the checks read weights.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from ownwords.core.config import toml_beside
from ownwords.core.errors import OwnwordsError
from ownwords.core.validation import decode, encode
from ownwords.core.workspace import (
    DATA_FOLDER_VARIABLE,
    SUFFIX,
    data_folder,
    write_atomically,
)
from ownwords.models import atomic_dir, directory, registry, weight_mapping
from ownwords.models.configs.config import ModelConfig
from ownwords.models.directory import CONFIG, PROVENANCE
from ownwords.models.gguf.reading import is_gguf, model_directory
from ownwords.models.untrusted_files import read_json
from ownwords.models.weight_mapping import INDEX, SINGLE, count_parameters
from ownwords.tokenizers.tokenizer import Tokenizer

SHIPPED: Final = "shipped"
SHIPPED_TITLE: Final = "the built-in model"  # its display name
LARGE: Final = 50_000_000  # parameters
RESERVED = frozenset({SHIPPED, "none"})  # names with a special meaning
RECOMMENDED: Final = "smollm2-135m"  # for a first model in English
MANIFEST = "base.json"
# Adapters of known bases, one folder each, for tasks that do not depend on an author.
ADAPTERS = Path(__file__).parent / "adapters"
NOTES = "notes.safetensors"  # writing from notes

_SHIPPED_FOLDER = Path(__file__).parent / "shipped"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ON_A_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_SAMPLE_TEXT = "The trouble with the world"  # any text can show that the logits are finite


# --- known bases ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """Terms of use that the user has to agree to; `gist` summarises them in our words."""

    title: str
    url: str
    gist: str
    notice: str  # the sentence that must accompany every copy; may be empty


@dataclass(frozen=True)
class GGUFPackage:
    """Python packages that contain a model as a GGUF file, whole or in parts."""

    requirements: tuple[str, ...]  # as pip takes them
    sha256: str  # of the whole file
    license_file: str  # the end of its path within the packages


@dataclass(frozen=True)
class KnownBase:
    """An open model that is worth starting from."""

    name: str
    title: str  # as its makers write it
    repository: str  # on the hub
    config: ModelConfig
    license: str
    other_languages: int  # besides English
    terms: Terms | None = None
    package: GGUFPackage | None = None
    package_bytes: int = 0

    @property
    def parameters(self) -> int:
        return count_parameters(self.config)

    @property
    def download_bytes(self) -> int:
        """The size of its packages, or of its weights on the hub, which are in bfloat16."""
        return self.package_bytes or 2 * self.parameters


def _read_known() -> Iterator[KnownBase]:
    data = toml_beside(__file__, "known_bases.toml")
    for base in data["bases"]:
        parts: dict[str, Any] = {"config": registry.config_from_json(base.pop("config"))}
        if "terms" in base:
            parts["terms"] = Terms(**data["terms"][base.pop("terms")])
        if "package" in base:
            parts["package"] = decode(GGUFPackage, base.pop("package"))
        yield KnownBase(**base, **parts)


KNOWN_BASES = tuple(_read_known())  # the smallest first


def find_known(source: str) -> KnownBase | None:
    """Return the known base of this name here or on the hub."""
    return next((base for base in KNOWN_BASES if source in (base.name, base.repository)), None)


def is_model_name(text: str) -> bool:
    """Return whether a text is the name of a model on a hub: ORG/NAME."""
    return _ON_A_HUB.fullmatch(text) is not None


# --- installed bases ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Manifest:
    """Where a base came from when it was added."""

    source: str  # the model on the hub, or the folder or program it came from
    revision: str = ""  # the commit on the hub; empty otherwise

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """Return the manifest in a folder; None without one. OwnwordsError if it is damaged."""
        path = folder / MANIFEST
        if not path.exists():
            return None
        return decode(cls, read_json(path), source=str(path), unknown="ignore")

    def write(self, folder: Path) -> None:
        text = json.dumps(encode(self), indent=2, ensure_ascii=False)
        write_atomically(folder / MANIFEST, text + "\n")


@dataclass(frozen=True)
class Entry:
    """An installed base."""

    name: str
    folder: Path
    source: str  # where it came from; empty if unknown
    bytes: int
    config: ModelConfig | None = None  # None if it cannot be read
    problem: str = ""  # why the base cannot be used; empty if it can
    text_licenses: tuple[str, ...] = ()  # of its training texts; its card names their authors

    @property
    def parameters(self) -> int:
        """The number of weights; 0 if the config cannot be read."""
        return count_parameters(self.config) if self.config else 0


def bases_folder() -> Path:
    """Return the folder of added bases, in the user's data folder."""
    return data_folder() / "bases"


def shipped() -> Path:
    """Return the folder of the shipped base; OwnwordsError if this installation has none."""
    if not has_shipped():
        raise OwnwordsError(
            "this installation has no shipped base",
            hint="reinstall ownwords, or add another base: ownwords base add ORG/NAME",
        )
    return _SHIPPED_FOLDER


def has_shipped() -> bool:
    """Return whether this installation has the shipped base."""
    return _is_model(_SHIPPED_FOLDER)


def entries() -> list[Entry]:
    """Return all installed bases, the shipped one first."""
    shipped = [entry(SHIPPED, _SHIPPED_FOLDER)] if has_shipped() else []
    folder = bases_folder()
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    return shipped + [
        entry(name, atomic_dir.readable_dir(folder / name))
        for name in names
        if _NAME.fullmatch(name) and (folder / name).is_dir()
    ]


def entry(name: str, folder: Path) -> Entry:
    """Return the entry of a base, from its config and file sizes."""
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    source = "shipped" if name == SHIPPED else ""
    try:
        manifest = Manifest.read(folder)
        source = source or (manifest.source if manifest else "")
        config = registry.config_from_json(read_json(folder / CONFIG))
        provenance = read_json(folder / PROVENANCE) if (folder / PROVENANCE).exists() else {}
    except OwnwordsError as error:
        return Entry(name, folder, source, size, problem=error.message)
    licenses = provenance.get("text_licenses")
    text_licenses = tuple(map(str, licenses)) if isinstance(licenses, list) else ()
    return Entry(name, folder, source, size, config, text_licenses=text_licenses)


def find(name: str) -> Path:
    """Return the model directory of a base: "" or "shipped", an added base's name, or a path.

    A path may also be a GGUF file, which is converted into the user's cache. A name takes
    precedence over a path: write `./NAME` for a folder with the name of a base. Raises
    OwnwordsError, which suggests a similar name, if there is none.
    """
    if name in ("", SHIPPED):
        return shipped()
    added = atomic_dir.readable_dir(bases_folder() / name) if _NAME.fullmatch(name) else None
    if added and added.is_dir():
        return added
    given = Path(name).expanduser()
    for folder in (given, given / "model"):  # a workspace has its model in `model`
        if _is_model(folder):
            return folder
    if is_gguf(given):
        return model_directory(given)
    if given.is_dir():
        raise OwnwordsError(
            f"{given} is not a model directory",
            hint="give the folder that holds config.json and model.safetensors",
        )
    if find_known(name) or (is_model_name(name) and not given.parent.is_dir()):
        hint = f"add it first: ownwords base add {name}"
    elif near := get_close_matches(name, {SHIPPED, *(each.name for each in entries())}, n=1):
        hint = f"did you mean {near[0]}?"
    else:
        hint = "`ownwords base` lists the bases; you can also give a model directory"
    raise OwnwordsError(f"there is no base called {name}", hint=hint)


def is_large(folder: Path) -> bool:
    """Return whether the base in a folder is so large that training on a CPU is slow."""
    return entry(folder.name, folder).parameters >= LARGE


def notes_adapter(folder: Path) -> Path | None:
    """Return the adapter with which a base, whole or trimmed, writes from notes."""
    path = ADAPTERS / folder.name / NOTES
    return path if path.exists() else None


def note_writer() -> Path | None:
    """Return the folder of the first installed base with a notes adapter; None without one."""
    able = (each for each in entries() if not each.problem and notes_adapter(each.folder))
    return next((each.folder for each in able), None)


def display_name(folder: Path | None) -> str:
    """Return the display name of a base folder; empty for no base."""
    if folder is None:
        return ""
    if folder == _SHIPPED_FOLDER:
        return SHIPPED_TITLE
    known = find_known(folder.name)
    return known.title if known else folder.name


def check_name(name: str) -> None:
    """Raise OwnwordsError if this is not a valid name for a base."""
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise OwnwordsError(
            f"{name!r:.80} cannot be the name of a base",
            hint="use at most 64 letters, digits, dots, dashes and underscores, a letter first",
        )
    if name.lower() in RESERVED:
        raise OwnwordsError(f"{name!r} is reserved", hint="choose another name")


def name_for(source: str) -> str:
    """Return the default name of a base: that of the model, folder or workspace."""
    path = Path(source)
    last = path.resolve().name if path.is_dir() else source.rpartition("/")[2]
    if last == "model" and path.is_dir():
        last = path.resolve().parent.name
    plain = last.removesuffix(SUFFIX).removesuffix(".gguf")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:64]


def find_models(sources: Sequence[str]) -> dict[str, Path]:
    """Return the folders of bases, model directories or workspaces with a model, by name."""
    folders: dict[str, Path] = {}
    for source in sources:
        folder = find(source).absolute()
        name = name_for(source) or "model"
        if folders.setdefault(name, folder) != folder:
            raise OwnwordsError(
                f"two models have the name {name}: {folders[name]} and {folder}",
                hint="rename the folder of one of them",
            )
    return folders


def _is_model(folder: Path) -> bool:
    weights = any((folder / name).exists() for name in (SINGLE, INDEX))
    return weights and (folder / CONFIG).exists()


# --- checks ---------------------------------------------------------------------------------------


def check_fits(folder: Path) -> None:
    """Raise ModelError unless weights, config and tokenizer match and can be trained further.

    Only the headers of the weight files are read.
    """
    model_files = directory.read(folder)
    stored = weight_mapping.find_tensors(folder)
    config = model_files.config
    if weight_mapping.is_quantized(stored):
        weight_mapping.check_quantized(stored, config, folder)
    else:
        weight_mapping.map_weights(stored, config, folder)
    model_files.check_tokenizer(Tokenizer(model_files.tokenizer_files))


def check_usable(folder: Path) -> None:
    """Raise OwnwordsError unless the base in this folder opens and its logits are finite."""
    import numpy as np  # noqa: PLC0415 - a tenth of a second

    from ownwords.inference.model import Model  # noqa: PLC0415

    try:
        check_fits(folder)
        model = Model.load(folder)
        ids = [int(each) for each in model.tokenizer.encode(_SAMPLE_TEXT)]
        start = model.tokenizer.start
        ids = (ids or ([] if start is None else [start]) or [0])[: model.engine.context]
        is_finite = np.isfinite(model.logits(ids)).all()
    except OwnwordsError as error:
        raise OwnwordsError(f"the model was not added: {error.message}", error.hint) from error
    if not is_finite:
        raise OwnwordsError(
            "the model was not added: its weights are damaged, because a few words give logits that"
            " are not finite",
            hint="copy or download it again",
        )


def check_disk_space(folder: Path, needed: int) -> None:
    """Raise OwnwordsError if the disk of a folder has fewer free bytes than needed."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OwnwordsError(
            f"the model needs {needed / 1e6:,.0f} MB, but the disk of {folder} has only"
            f" {free / 1e6:,.0f} MB free",
            hint=f"free some space, or choose another folder: {DATA_FOLDER_VARIABLE}=PATH",
        )
