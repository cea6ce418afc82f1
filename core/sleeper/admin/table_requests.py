"""Requests to create a table: JSON of clients over HTTP, also of those of gchq/sleeper."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from sleeper.admin.tables import create_table, parse_split_points
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)
from sleeper.instance import Instance
from sleeper.json_members import check_members, list_member
from sleeper.properties.table import NAME, SPLITS_BASE64
from sleeper.schema.model import KeyValue, schema_from_json
from sleeper.tables import TableRef

logger = logging.getLogger(__name__)

ADD_TABLE_MEMBERS = ("properties", "schema", "splitPoints")
"""The members of a request of gchq/sleeper."""
_INVALID = "invalid_request"


def create_requested_table(
    instance: Instance, name: str, raw: Mapping[str, Any], properties: Mapping[str, str]
) -> TableRef:
    """Creates a table with the `schema` and `splitPoints` of a request."""
    definition = raw.get("schema")
    if not isinstance(definition, dict):
        raise InvalidRequestError(f'"schema" must be an object, not {definition!r:.200}')
    schema_text = json.dumps(definition)
    points = _split_points(schema_text, raw, properties.get(SPLITS_BASE64.name, "") == "true")
    return create_table(instance, name, schema_text, properties, points)


def property_members(raw: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the `properties` of a request; none if they are missing."""
    values = raw.get("properties")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidRequestError(f'"properties" must be an object, not {values!r:.200}')
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidRequestError(f'"properties": {name} must be text, not {value!r:.200}')
    return values


def add_table_as_gchq(instance: Instance, raw: object) -> tuple[HTTPStatus, dict[str, str]]:
    """Creates a table by a request of gchq/sleeper; returns the status and JSON of its answer.

    It raises no error: the answer describes it.
    """
    try:
        ref = _create_as_gchq(instance, raw)
    except ConflictError as error:
        return describe_refusal(HTTPStatus.CONFLICT, str(error), "table_already_exists")
    except (InvalidRequestError, NotFoundError) as error:
        return describe_refusal(HTTPStatus.BAD_REQUEST, str(error))
    except Exception as error:
        logger.exception("could not create a table")
        is_transient = isinstance(error, UnavailableError)
        return describe_refusal(
            HTTPStatus.SERVICE_UNAVAILABLE if is_transient else HTTPStatus.INTERNAL_SERVER_ERROR,
            str(error) if isinstance(error, SleeperError) else "internal error: see the log",
            "internal_error",
        )
    return HTTPStatus.CREATED, {"tableId": ref.id, "tableName": ref.name}


def describe_refusal(
    status: HTTPStatus, message: str, kind: str = _INVALID
) -> tuple[HTTPStatus, dict[str, str]]:
    """Returns the status and JSON of an error, as gchq/sleeper answers."""
    return status, {"error": kind, "message": message}


def _create_as_gchq(instance: Instance, raw: object) -> TableRef:
    if not isinstance(raw, dict):
        raise InvalidRequestError("the body must be a JSON object")
    check_members(raw, ADD_TABLE_MEMBERS)
    properties = dict(property_members(raw))
    name = properties.pop(NAME.name, None)
    if name is None:
        raise InvalidRequestError(f'"properties" has no {NAME.name} (expected the name of a table)')
    return create_requested_table(instance, name, raw, properties)


def _split_points(schema_text: str, raw: Mapping[str, Any], is_base64: bool) -> list[KeyValue]:
    schema = schema_from_json(schema_text)
    points: list[KeyValue] = []
    for index, point in enumerate(list_member(raw, "splitPoints")):
        where = f'"splitPoints[{index}]"'
        is_number = isinstance(point, int) and not isinstance(point, bool)
        if not is_number and not isinstance(point, str):
            raise InvalidRequestError(f"{where} must be text or an integer, not {point!r:.200}")
        parsed = parse_split_points(schema, str(point), where, is_base64)
        if len(parsed) != 1:
            raise InvalidRequestError(f"{where} must be one value, not {point!r:.200}")
        points += parsed
    return points
