"""The OpenAPI description: every route, with the schemas that validate the requests."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from ownwords.core.workspace import Workspace
from ownwords.serve.api_route import ApiRoute, NoBody
from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState
from ownwords.serve.jobs.requests import REQUESTS
from ownwords.serve.settings import ServeSettings

# The page itself, and what answers for paths that do not exist.
OTHERS = ("/login", "/logout", "/v1", "/v1/{rest:path}")


@pytest.fixture
def app(tmp_path: Path) -> Any:  # noqa: ANN401
    return create_app(AppState(Workspace(tmp_path / "w.ownwords"), ServeSettings(key="")))


@pytest.fixture
def schema(app: Any) -> dict[str, Any]:  # noqa: ANN401
    client = TestClient(app, base_url="http://127.0.0.1:8377")
    described: dict[str, Any] = client.get("/api/schema").json()
    return described


def test_every_route_is_described(app: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401
    routes = [r for r in (*app.routes, *app.state.blogs.routes) if isinstance(r, Route)]
    api = [route for route in routes if route.path.startswith(("/api", "/v1", "/healthz", "/metr"))]
    plain = [r.path for r in api if not isinstance(r, ApiRoute) and r.path not in OTHERS]
    assert plain == []
    described = {(m.upper(), p) for p, operations in schema["paths"].items() for m in operations}
    for route in api:
        if isinstance(route, ApiRoute):
            assert (route.method, route.path.replace(":path", "")) in described
            assert route.summary, route.path
    assert len(described) > 50
    assert ("GET", "/api/schema") in described


def test_schemas_are_those_that_validate_the_requests(
    app: Any,  # noqa: ANN401
    schema: dict[str, Any],
) -> None:
    for route in app.state.blogs.routes:
        if isinstance(route, ApiRoute) and route.body is not NoBody:
            operation = schema["paths"][route.path][route.method.lower()]
            content = operation["requestBody"]["content"]["application/json"]["schema"]
            shapes = route.body if isinstance(route.body, tuple) else (route.body,)
            text = json.dumps(content)
            for shape in shapes:
                assert f"#/components/schemas/{shape.__name__}" in text
                (component,), components = msgspec.json.schema_components(
                    [shape], ref_template="#/components/schemas/{name}"
                )
                assert component["$ref"].endswith(shape.__name__)
                assert schema["components"]["schemas"][shape.__name__] == json.loads(
                    json.dumps(components[shape.__name__])
                )


def test_a_job_is_one_of_its_kinds(schema: dict[str, Any]) -> None:
    body = schema["paths"]["/api/jobs"]["post"]["requestBody"]["content"]["application/json"]
    kinds = [kind["allOf"][1]["properties"]["kind"]["const"] for kind in body["schema"]["oneOf"]]
    assert kinds == list(REQUESTS)


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    names = schema["components"]["schemas"].keys()
    refs: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            refs.update(v for k, v in value.items() if k == "$ref")
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(schema)
    assert {ref.rpartition("/")[2] for ref in refs} <= names
