"""What a verb says where an optional package is not installed."""

import importlib.util

from ownwords.core.errors import OwnwordsError

_PACKAGES = {"torch": ("PyTorch", "train"), "optuna": ("Optuna", "train,tune")}


def require_package(package: str, purpose: str) -> None:
    """Raise OwnwordsError where the package is missing; nothing is imported."""
    if importlib.util.find_spec(package) is None:
        name, extra = _PACKAGES[package]
        raise OwnwordsError(
            f"{purpose} needs {name}, which is not installed",
            hint=f'pip install "ownwords[{extra}]"',
        )
