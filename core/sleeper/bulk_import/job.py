"""The Spark settings of a bulk import message (docs/formats.md, "Bulk import messages")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.files_message import optional_text, parse_object, text_of

_WHAT = "bulk import message"


@dataclass(frozen=True, slots=True)
class SparkRequest:
    """The members of the message beside those of an ingest job; each may be missing."""

    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    class_name: str | None = None


def spark_request_from_message(body: str) -> SparkRequest:
    """Parses them. InvalidRequestError says which one is wrong."""
    raw = parse_object(body, _WHAT)
    class_name = optional_text(raw, "className", _WHAT)
    return SparkRequest(_texts(raw, "platformSpec"), _texts(raw, "sparkConf"), class_name)


def _texts(raw: Mapping[str, Any], member: str) -> Mapping[str, str]:
    """A map of texts. Members that are null are left out."""
    found = raw.get(member)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidRequestError(f'{_WHAT}: "{member}" must be a map of texts')
    return {
        name: text_of(value, f'{_WHAT}: "{member}" must be a map of texts: {name[:200]!r}')
        for name, value in found.items()
        if value is not None
    }
