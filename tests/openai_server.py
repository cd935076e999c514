"""A server with tiny models, and its OpenAI routes called in memory or over loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from ownwords.core.errors import OwnwordsError
from ownwords.core.workspace import Workspace
from ownwords.inference import copy_guard as guarding
from ownwords.models.directory import COPY_GUARD
from ownwords.models.safetensors_header import encode_header
from ownwords.serve.app import on_error, on_http_exception
from ownwords.serve.app_state import AppState
from ownwords.serve.openai import routes
from ownwords.serve.settings import ServeSettings
from ownwords.tokenizers.bpe import ByteTokenizer
from ownwords.tokenizers.tokenizer import Tokenizer

T = TypeVar("T")
OWN, SECOND = "blog", "second"
CONTEXT, WIDTH = 96, 16
LEARNED = "The trouble with backups is that they are files, and files are what one loses. " * 3


def workspace(folder: Path) -> Workspace:
    """A workspace whose own model is a tiny byte-level one, with a copy guard of `LEARNED`."""
    workspace_made = Workspace(folder / f"{OWN}.ownwords")
    save(workspace_made.root / "model", ByteTokenizer(), learned=LEARNED)
    return workspace_made


def second(folder: Path) -> Path:
    """The folder of a second model."""
    save(folder / SECOND, ByteTokenizer(), seed=5)
    return folder / SECOND


def save(folder: Path, tokenizer: Tokenizer, *, seed: int = 3, learned: str = "") -> None:
    """Save a random model with a fairly flat distribution."""
    folder.mkdir(parents=True)
    config = {
        "model_type": "qwen3",
        "vocab_size": tokenizer.vocabulary_size,
        "max_position_embeddings": CONTEXT,
        "hidden_size": WIDTH,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for name, data in tokenizer.files().items():
        (folder / name).write_bytes(data)
    (folder / "model.safetensors").write_bytes(_weights(tokenizer.vocabulary_size, seed))
    if learned:
        ids = [np.array(tokenizer.encode(learned))]
        guard = guarding.build(ids, tokenizer, longest=8)
        (folder / COPY_GUARD).write_bytes(guard.to_bytes())


def _weights(vocabulary: int, seed: int) -> bytes:
    """A safetensors file, written without PyTorch, which the server does not need either."""
    layer = {
        "input_layernorm": (WIDTH,),
        "post_attention_layernorm": (WIDTH,),
        "self_attn.q_proj": (16, WIDTH),
        "self_attn.k_proj": (8, WIDTH),
        "self_attn.v_proj": (8, WIDTH),
        "self_attn.o_proj": (WIDTH, 16),
        "self_attn.q_norm": (8,),
        "self_attn.k_norm": (8,),
        "mlp.gate_proj": (24, WIDTH),
        "mlp.up_proj": (24, WIDTH),
        "mlp.down_proj": (WIDTH, 24),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (vocabulary, WIDTH)}
    for n in range(2):
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm"] = (WIDTH,)
    rng = np.random.default_rng(seed)
    header = encode_header([(f"{name}.weight", "F32", shape) for name, shape in shapes.items()], {})
    values = (rng.normal(float(len(shape) == 1), 0.3, shape) for shape in shapes.values())
    return header + b"".join(each.astype("<f4").tobytes() for each in values)


def settings(**changed: Any) -> ServeSettings:  # noqa: ANN401
    """The default server settings, but one compute thread."""
    return ServeSettings(**{"threads": 1, "rows": 8, "embed": "none", **changed})


class Client:
    """Calls the routes as a client does, without a socket."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        handlers = {OwnwordsError: on_error, HTTPException: on_http_exception}
        self._app = Starlette(routes=routes(state), exception_handlers=handlers)
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self._app), base_url="http://here"
        )

    async def get(self, path: str) -> httpx.Response:
        return await self._http.get(path)

    async def post(self, path: str, body: Mapping[str, object] | bytes) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        return await self._http.post(path, content=data, headers=headers)

    async def request(self, path: str, /, **body: object) -> Any:  # noqa: ANN401
        """The answer to a valid request; the own model unless another is named."""
        answer = await self.post(path, {"model": OWN, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def streamed(self, path: str, /, **body: object) -> list[Any]:
        """The events of a streamed answer, checked to end correctly."""
        answer = await self.post(path, {"model": OWN, "stream": True, **body})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return events_of(answer.text)

    async def refused(self, path: str, body: Mapping[str, object] | bytes) -> tuple[int, Any]:
        """Status and error of a refused request."""
        answer = await self.post(path, body)
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "Traceback" not in answer.text
        return answer.status_code, error


def events_of(text: str, *, ended: bool = True) -> list[Any]:
    """The events of a stream; each is one line of data and an empty one."""
    assert text.endswith("\n\n")
    lines = text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    events = [line.removeprefix("data: ") for line in lines]
    assert (events[-1] == "[DONE]") == ended
    return [json.loads(event) for event in events if event != "[DONE]"]


@asynccontextmanager
async def running_client(
    workspace: Workspace, models: Mapping[str, Path] | None = None, **changed: object
) -> AsyncIterator[Client]:
    """A client of a server that runs within the block."""
    state = AppState(workspace, settings(**changed), models=models or {})
    try:
        yield Client(state)
    finally:
        await state.close()


def run_with_client(
    workspace: Workspace,
    work: Callable[[Client], Awaitable[T]],
    models: Mapping[str, Path] | None = None,
    **changed: object,
) -> T:
    """The result of the work, with its own server."""

    async def run() -> T:
        async with running_client(workspace, models, **changed) as client:
            return await work(client)

    return asyncio.run(run())


class Api:
    """A `Client` whose methods are called from outside of its event loop."""

    def __init__(self, runner: asyncio.Runner, client: Client) -> None:
        self._runner, self._client = runner, client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **fields: self._runner.run(method(*arguments, **fields))


@contextmanager
def running_api(workspace: Workspace, models: Mapping[str, Path] | None = None) -> Iterator[Api]:
    """One server for many requests: opening it takes longer than most of them."""
    with asyncio.Runner() as runner:
        context = running_client(workspace, models)
        api = Api(runner, runner.run(context.__aenter__()))
        try:
            yield api
        finally:
            runner.run(context.__aexit__(None, None, None))
