"""A plugin for LLM (https://llm.datasette.io): the models of the user's workspaces.

LLM imports this at every start, so nothing heavy is imported before a model is used.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm
from pydantic import Field

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import SUFFIX, Workspace
from ownwords.serve.workspace_list import WorkspaceList

if TYPE_CHECKING:
    from ownwords.inference.model import Model


@llm.hookimpl  # type: ignore[untyped-decorator]
def register_models(register: Callable[..., None]) -> None:
    """Register the model of each workspace that is in this folder, or was opened before."""
    # Of several workspaces with one name, the closest comes first.
    folders: dict[str, Path] = {}
    for root in WorkspaceList(Workspace(Path.cwd() / SUFFIX)).paths():
        if (root / "model").is_dir():
            folders.setdefault(root.name.removesuffix(SUFFIX), root / "model")
    for name, folder in folders.items():
        register(WorkspaceModel(f"ownwords/{name}", folder))


class WorkspaceModel(llm.Model):  # type: ignore[misc]
    """A model that continues the prompt, in the voice of one author."""

    can_stream = True

    class Options(llm.Options):  # type: ignore[misc]
        """What `ownwords write` takes."""

        max_tokens: int = Field(default=400, ge=1, description="Maximum number of tokens.")
        temperature: float | None = Field(
            default=None, ge=0, description="Lower is safer, higher is bolder."
        )
        seed: int = Field(default=1, ge=0, description="The same seed gives the same text.")

    def __init__(self, model_id: str, folder: Path) -> None:
        self.model_id, self._folder = model_id, folder

    @cached_property
    def _model(self) -> "Model":
        from ownwords.inference.model import Model

        return Model.load(self._folder)

    def execute(
        self,
        prompt: Any,  # noqa: ANN401 - LLM's types, which need not be installed to check these
        stream: bool,
        response: Any,  # noqa: ANN401
        conversation: Any,  # noqa: ANN401
    ) -> Iterator[str]:
        """Continue the prompt; in a conversation, the whole text so far."""
        turns = conversation.responses if conversation else ()
        before = "".join(f"{turn.prompt.prompt}{turn.text()}" for turn in turns)
        options = prompt.options
        bold = {} if options.temperature is None else {"temperature": options.temperature}
        try:
            pieces = self._model.write(
                before + prompt.prompt, max_tokens=options.max_tokens, seed=options.seed, **bold
            )
            yield from pieces if stream else ("".join(pieces),)
        except OwnwordsError as error:
            raise llm.ModelError(str(error)) from error
