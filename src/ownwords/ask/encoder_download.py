"""Downloads an encoder from the Hugging Face Hub when it is first named: data, never code."""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from ownwords.ask.sentence_model import MODULES, SentenceModel
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.progress import printable
from ownwords.core.workspace import data_folder, translate_os_errors

ENDPOINT: Final = "https://huggingface.co"
_FILES: Final = (
    MODULES,
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "*_Pooling/config.json",
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_CACHE = ".cache"  # where huggingface_hub keeps what it needs to resume


def encoder_folder(name: str) -> Path:
    """The folder of the encoder ORG/NAME in the user's data folder, downloaded the first time.

    The folder is created once all files are there and can be used; an interrupted download is
    resumed. HF_ENDPOINT selects another hub. OwnwordsError says why it cannot be had.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.200} is not the name of a model", hint="it is ORG/NAME")
    folder = data_folder() / "encoders" / name.replace("/", "--")
    if folder.is_dir():
        return folder
    draft = folder.with_name(f".{folder.name}.fetching")
    with translate_os_errors(folder):
        draft.mkdir(parents=True, exist_ok=True)
        _download(name, draft)
        try:
            SentenceModel(draft)
        except OwnwordsError:  # it cannot be used, however often it is downloaded
            shutil.rmtree(draft)
            raise
        shutil.rmtree(draft / _CACHE, ignore_errors=True)
        draft.rename(folder)
    return folder


def _download(name: str, folder: Path) -> None:
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or ENDPOINT
    try:
        from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - half a second
    except ModuleNotFoundError as error:
        raise OwnwordsError(
            "downloading a model needs the package huggingface_hub",
            hint='pip install "ownwords[embed]"',
        ) from error
    # The user's token is not sent unencrypted.
    token = None if endpoint.startswith("https://") else False
    try:
        snapshot_download(
            name,
            revision=HfApi(endpoint=endpoint, token=token).model_info(name).sha,
            local_dir=folder,
            allow_patterns=list(_FILES),
            endpoint=endpoint,
            token=token,
        )
    except Exception as error:  # whatever its HTTP library raises
        reason = printable(" ".join(str(error.__cause__ or error).split()))[:160]
        raise OwnwordsError(
            f"{name} could not be downloaded from {endpoint}: {reason}",
            hint="the same command goes on where it stopped; or give the folder of an encoder",
        ) from error
