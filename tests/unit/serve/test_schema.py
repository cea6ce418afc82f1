"""Models of responses: a dataclass gives the JSON and its schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sleeper.reports.output import Column, ColumnKind
from sleeper.serve.schema import OPTIONAL, Rows, Schema, request_model, response_model, rows_of

COLUMNS = (Column("queue", "Queue"), Column("lag", "Lag", ColumnKind.COUNT))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a response."""

    row_count: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    number: Annotated[int | None, Schema("of the transaction", minimum=1)]
    already_done: bool
    parts: tuple[Part, ...]
    queues: Annotated[Rows, rows_of(COLUMNS, ("lag",), queue=Schema("its name"))]
    values: Mapping[str, str]
    job: Annotated[str | None, OPTIONAL] = None


def test_the_schema_of_a_response_follows_from_its_dataclass() -> None:
    model = response_model(Answer)
    assert model.name == "Answer"
    queue = {"type": "string", "description": "its name"}
    assert model.schema == {
        "type": "object",
        "required": ["number", "alreadyDone", "parts", "queues", "values"],
        "properties": {
            "number": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "of the transaction",
            },
            "alreadyDone": {"type": "boolean"},
            "parts": _list_of({"rowCount": {"type": "integer", "minimum": 0}}),
            "queues": _list_of(
                {"queue": queue, "lag": {"type": ["integer", "null"], "minimum": 0}}
            ),
            "values": {"type": "object", "additionalProperties": {"type": "string"}},
            "job": {"type": "string"},
        },
    }


def _list_of(properties: dict[str, Any]) -> dict[str, Any]:
    items = {"type": "object", "required": list(properties), "properties": properties}
    return {"type": "array", "items": items}


def test_a_response_has_the_members_of_its_schema() -> None:
    model = response_model(Answer)
    whole = Answer(1, False, (Part(3),), [{"queue": "a", "lag": None}], {"a": "b"}, "j")
    encoded = model.codec.to_json(whole)
    assert tuple(encoded) == model.members
    assert (encoded["parts"], encoded["queues"]) == (
        [{"rowCount": 3}],
        [{"queue": "a", "lag": None}],
    )
    assert "job" not in model.codec.to_json(Answer(None, True, (), [], {}))


def test_a_request_without_required_members_is_closed() -> None:
    model = request_model("Expire", {}, {"dryRun": {"type": "boolean"}})
    assert (model.is_closed, model.members, "required" in model.schema) == (
        True,
        ("dryRun",),
        False,
    )
