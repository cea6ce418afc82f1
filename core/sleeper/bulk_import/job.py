"""What a bulk import's message asks of Spark (FORMATS: Messages, bulk import)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sleeper.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class SparkRequest:
    """The members of the message beside those of an ingest job; each may be missing."""

    platform_spec: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    class_name: str | None = None


def spark_request_from_message(body: str) -> SparkRequest:
    """Parses them. InvalidRequestError says which one is wrong."""
    try:
        raw = json.loads(body)
    except ValueError as error:
        raise InvalidRequestError(f"bulk import message is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError("bulk import message must be a JSON object")
    class_name = raw.get("className")
    if class_name is not None and not isinstance(class_name, str):
        raise InvalidRequestError('bulk import message: "className" must be text')
    return SparkRequest(_texts(raw, "platformSpec"), _texts(raw, "sparkConf"), class_name)


def _texts(raw: Mapping[str, Any], member: str) -> Mapping[str, str]:
    found = raw.get(member)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise InvalidRequestError(f'bulk import message: "{member}" must be a map of texts')
    return found
