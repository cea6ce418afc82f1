"""The `.checksum` sidecar: the hash of a data file's bytes, by which damage is found later.

The engine's own writer gives pages no checksums, so what it writes has one of the whole:
a line of text, the hash's name (XXH3, 128 bits) and its value in hexadecimal digits.
"""

from collections.abc import Iterable

import xxhash

from sleeper.errors import DataError

_NAME = "xxh3-128"
_DIGITS = 32


def checksum_of(parts: Iterable[bytes | memoryview]) -> str:
    """The checksum of a file that comes in parts."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def checksum_to_bytes(checksum: str) -> bytes:
    """The sidecar's content."""
    return f"{_NAME} {checksum}\n".encode()


def checksum_from_bytes(content: bytes, path: str) -> str:
    """The checksum of a sidecar; DataError names the path if it is torn or of another kind."""
    name, _, checksum = content.decode(errors="replace").rstrip("\n").partition(" ")
    if name != _NAME or len(checksum) != _DIGITS:
        raise DataError(f"sidecar {path} is no checksum by {_NAME}: {content[:60]!r}")
    return checksum
