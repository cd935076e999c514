"""Hashes of content."""

import hashlib
from pathlib import Path


def digest(*parts: str | bytes) -> str:
    """Return the 128-bit BLAKE2b hash of the parts in hexadecimal; their boundaries count."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        # surrogatepass: a title may hold a lone surrogate
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
