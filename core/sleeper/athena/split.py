"""Splits: the part of a table that one Athena read covers, and its place for spilled blocks.

A split's properties are texts that Athena returns unchanged.
"""

import base64
import binascii
import json
import secrets
import uuid
from dataclasses import dataclass
from typing import Any

from sleeper.athena.encoding import member, optional_text
from sleeper.errors import InvalidRequestError
from sleeper.tables import TableId

_WHAT = "the split"
_KEY_BYTES = 32
# The SDK's keys before 2024 had 16.
_KEY_SIZES = (16, _KEY_BYTES)
_NONCE_BYTES = 12
_SPILL_PREFIX = "athena"


@dataclass(frozen=True, slots=True)
class SpillLocation:
    """An object of S3, or the common prefix of the keys of a split's blocks (`is_directory`)."""

    bucket: str
    key: str
    is_directory: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "@type": "S3SpillLocation",
            "bucket": self.bucket,
            "key": self.key,
            "directory": self.is_directory,
        }


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """An AES-GCM key of 32 or 16 bytes, and the nonce of 12, one per split in the protocol."""

    key: bytes
    nonce: bytes

    def to_json(self) -> dict[str, Any]:
        encoded = {"key": self.key, "nonce": self.nonce}
        return {name: base64.b64encode(value).decode() for name, value in encoded.items()}


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of a table in a region at a version, which the hold keeps.

    `region` is JSON as in docs/formats.md, "Regions and ranges".
    """

    spill: SpillLocation
    encryption_key: EncryptionKey | None
    table_id: TableId
    version: int
    hold_id: str
    region: Any

    def to_json(self) -> dict[str, Any]:
        return {
            "spillLocation": self.spill.to_json(),
            "encryptionKey": self.encryption_key and self.encryption_key.to_json(),
            "properties": {
                "table": self.table_id,
                "version": str(self.version),
                "hold": self.hold_id,
                "region": json.dumps(self.region, ensure_ascii=False, separators=(",", ":")),
            },
        }


def new_spill_location(bucket: str, query_id: str) -> SpillLocation:
    """Returns a new place for a split's blocks, in the SDK's layout: prefix, query, split."""
    return SpillLocation(bucket, f"{_SPILL_PREFIX}/{query_id}/{uuid.uuid4()}", True)


def new_encryption_key() -> EncryptionKey:
    """Returns a new key and nonce."""
    return EncryptionKey(secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(_NONCE_BYTES))


def split_from_json(raw: Any) -> Split:
    """Parses a split. InvalidRequestError names the invalid member."""
    properties = member(raw, "properties", dict, _WHAT)
    try:
        version = int(member(properties, "version", str, _WHAT))
        region = json.loads(member(properties, "region", str, _WHAT))
    except ValueError as error:
        raise InvalidRequestError(f"the split's properties are invalid: {error}") from error
    return Split(
        _spill_location(member(raw, "spillLocation", dict, _WHAT)),
        encryption_key_from_json(raw.get("encryptionKey")),
        TableId(member(properties, "table", str, _WHAT)),
        version,
        member(properties, "hold", str, _WHAT),
        region,
    )


def encryption_key_from_json(raw: Any) -> EncryptionKey | None:
    """Parses a key, None if there is none. InvalidRequestError if its length is wrong."""
    if raw is None:
        return None
    what = "the split's encryption key"
    try:
        key = EncryptionKey(
            base64.b64decode(optional_text(raw, "key", what) or "", validate=True),
            base64.b64decode(optional_text(raw, "nonce", what) or "", validate=True),
        )
    except binascii.Error as error:
        raise InvalidRequestError(f"{what} is not base64: {error}") from error
    if not key.key and not key.nonce:
        return None
    if len(key.key) not in _KEY_SIZES or len(key.nonce) != _NONCE_BYTES:
        raise InvalidRequestError(
            f"{what} has {len(key.key)} bytes and a nonce of {len(key.nonce)} "
            f"(expected {' or '.join(map(str, _KEY_SIZES))}, and {_NONCE_BYTES})"
        )
    return key


def _spill_location(raw: dict[str, Any]) -> SpillLocation:
    what = "the split's spill location"
    return SpillLocation(
        member(raw, "bucket", str, what),
        member(raw, "key", str, what),
        member(raw, "directory", bool, what),
    )
