"""Remembers which model servers on this machine may get passages without being named.

Any program, of any account, can listen on the port of Ollama or llama.cpp. So the user is asked
once for each address; `ask.toml` in the user's data folder keeps the decisions.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from ownwords.core.config import Resolved, resolve
from ownwords.core.workspace import data_folder, translate_os_errors, write_atomically

FILE = "ask.toml"


@dataclass(frozen=True)
class EndpointConsent:
    """The addresses of the endpoints that may get passages, and of those that may not."""

    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @classmethod
    def read(cls) -> "EndpointConsent":
        """The stored decisions; ConfigError if the file is damaged."""
        path = consent_file()
        return resolve(cls, toml=[path] if path.exists() else []).settings

    def with_decision(self, url: str, may_send: bool) -> "EndpointConsent":
        """Store a decision about an address; returns all decisions."""
        if may_send:
            decided = replace(self, allowed=(*self.allowed, url))
        else:
            decided = replace(self, refused=(*self.refused, url))
        path = consent_file()
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        origins = dict.fromkeys(("allowed", "refused"), "asked by ownwords ask")
        write_atomically(path, Resolved(decided, origins).to_toml())
        return decided


def consent_file() -> Path:
    """Where the decisions are stored."""
    return data_folder() / FILE
