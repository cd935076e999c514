"""Which model is meant, where a verb that writes was given a folder or nothing at all."""

from pathlib import Path

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX

_CONFIG, _MODEL = "config.json", "model"


def model_folder(given: Path | None, here: Path) -> Path:
    """The model directory: the one given, that of a workspace given, or the only one in `here`.

    Looked for is the `model` of folders called NAME.ownwords. OwnwordsError where there is none,
    or where it is not clear which.
    """
    if given is not None:
        return _of(given)
    found = sorted(path.parent for path in here.glob(f"*{SUFFIX}/{_MODEL}") if _holds_model(path))
    if not found:
        raise OwnwordsError(
            f"there is no model here: no folder NAME{SUFFIX} in {here} holds one",
            hint="make one with `ownwords make PATH`, or say where one is with --model",
        )
    if len(found) > 1:
        raise OwnwordsError(
            f"there are {len(found)} models here: " + ", ".join(path.name for path in found),
            hint=f"say which with --model {found[0].name}",
        )
    return found[0] / _MODEL


def _of(given: Path) -> Path:
    if given.is_file():
        hint = "give the folder that holds config.json"
        if given.suffix.lower() == ".gguf":
            hint = f"make one of it: ownwords export {given} --to hf"
        raise OwnwordsError(f"{given} is a file, and not a model directory", hint=hint)
    if not given.exists():
        raise OwnwordsError(f"{given} does not exist", hint="give the folder of a model")
    if not _holds_model(given) and _holds_model(given / _MODEL):
        return given / _MODEL
    if given.name.endswith(SUFFIX) and not _holds_model(given):
        raise OwnwordsError(
            f"the workspace {given} holds no model yet",
            hint="make one with `ownwords make PATH`",
        )
    return given  # what is missing in it is told when it is read


def _holds_model(folder: Path) -> bool:
    return (folder / _CONFIG).exists()
