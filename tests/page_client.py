"""A client of the page's API: the whole app in memory, asked as its own page asks it."""

from starlette.testclient import TestClient

from ownwords.serve.app import create_app
from ownwords.serve.app_state import AppState


def page_client(state: AppState) -> TestClient:
    headers = {"Content-Type": "application/json"}
    if state.settings.key:
        headers["Authorization"] = f"Bearer {state.settings.key}"
    return TestClient(create_app(state), base_url="http://127.0.0.1:8377", headers=headers)
