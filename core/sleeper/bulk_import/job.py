"""The Spark settings of a bulk import message (docs/formats.md, "Bulk import messages")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.files_message import optional_text, parse_object, text_of

_WHAT = "bulk import message"


@dataclass(frozen=True, slots=True)
class SparkRequest:
    """The optional members of the message in addition to those of an ingest job."""

    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    class_name: str | None = None


def spark_request_from_message(body: str) -> SparkRequest:
    """Parses a message. InvalidRequestError names the invalid member."""
    raw = parse_object(body, _WHAT)
    class_name = optional_text(raw, "className", _WHAT)
    return SparkRequest(_texts(raw, "platformSpec"), _texts(raw, "sparkConf"), class_name)


def _texts(raw: Mapping[str, Any], member: str) -> Mapping[str, str]:
    """Returns a map of texts without its null members."""
    texts = raw.get(member)
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise InvalidRequestError(f'{_WHAT}: "{member}" must be a map of texts')
    return {
        name: text_of(value, f'{_WHAT}: "{member}" must be a map of texts: {name[:200]!r}')
        for name, value in texts.items()
        if value is not None
    }
