"""Content keys: equal content, equal key, whatever the file is called or when it was touched."""

import hashlib


def digest(*parts: str | bytes) -> str:
    """A 128-bit key of the parts in order, as hexadecimal; no two lists of parts run together."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        # surrogatepass: a lone surrogate in a title is damage to be repaired, not a reason to stop
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()
