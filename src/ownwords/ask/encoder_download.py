"""Downloads an encoder from the Hugging Face Hub when it is first named: data, never code."""

import shutil
from pathlib import Path
from typing import Final

from ownwords.ask.sentence_model import MODULES, SentenceModel
from ownwords.core import hub
from ownwords.core.errors import ConfigError, OwnwordsError
from ownwords.core.workspace import data_folder, translate_os_errors

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


def encoder_folder(name: str) -> Path:
    """The folder of the encoder ORG/NAME in the user's data folder, downloaded the first time.

    The folder is created once all files are there and can be used; an interrupted download is
    resumed. HF_ENDPOINT selects another hub. OwnwordsError says why it cannot be had.
    """
    if not hub.is_model_name(name):
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
        shutil.rmtree(draft / hub.CACHE, ignore_errors=True)
        draft.rename(folder)
    return folder


def _download(name: str, folder: Path) -> None:
    endpoint = hub.endpoint_in_force()
    token = hub.token_for(endpoint)
    try:
        with hub.translate_errors(endpoint, name, "embed"):
            from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - half a second

            snapshot_download(
                name,
                revision=HfApi(endpoint=endpoint, token=token).model_info(name).sha,
                local_dir=folder,
                allow_patterns=list(_FILES),
                endpoint=endpoint,
                token=token,
            )
    except hub.HubError as error:
        raise OwnwordsError(
            f"{name} could not be downloaded from {endpoint}: {error.message}", hint=error.hint
        ) from error
