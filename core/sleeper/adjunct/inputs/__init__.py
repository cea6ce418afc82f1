"""Inputs, from which stores are filled, by kind: the text before the first colon.

A new kind is a module with `open_input`, and a line in `KINDS`. The module is imported on first
use, because it may need a package that only its extra installs.
"""

import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from sleeper.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from sleeper.adjunct.definition import StoreDefinition
    from sleeper.adjunct.inputs.dataset import DatasetInput
    from sleeper.adjunct.inputs.log import LogInput
    from sleeper.adjunct.inputs.opening import InputRequest, OpenInstance


class InputKind(NamedTuple):
    """A kind of input: the form of its text, and the module that opens it."""

    form: str
    module: str
    has_datasets: bool = False


KINDS = {
    "table": InputKind("table:NAME", "inputs.table", has_datasets=True),
    "stash": InputKind("stash:DESTINATION#TABLE", "inputs.stash", has_datasets=True),
    "files": InputKind("files:PATH", "inputs.files", has_datasets=True),
    "kafka": InputKind("kafka://HOST:PORT/TOPIC", "inputs.kafka"),
    "kinesis": InputKind("kinesis:STREAM", "aws.kinesis_stream"),
    "dynamodb": InputKind("dynamodb:TABLE", "aws.dynamodb_stream"),
}


class _InputModule(Protocol):
    """The functions of an input's module."""

    def open_input(self, request: "InputRequest") -> "DatasetInput | LogInput":
        """Opens the input. InvalidRequestError if its text is invalid."""


def describe_kinds(has_datasets: bool = False) -> str:
    """Returns the forms of all kinds, or of those with datasets, as `A, B or C`."""
    *first, last = [each.form for each in KINDS.values() if each.has_datasets or not has_datasets]
    return f"{', '.join(first)} or {last}"


def open_input(request: "InputRequest") -> "DatasetInput | LogInput":
    """Opens the input. InvalidRequestError if there is none of this kind."""
    kind = KINDS.get(request.kind)
    if kind is None or not request.rest:
        raise InvalidRequestError(
            f"store {request.definition.name!r}: unknown input {request.definition.input!r} "
            f"(expected {describe_kinds()})"
        )
    module = cast(_InputModule, importlib.import_module(f"sleeper.adjunct.{kind.module}"))
    return module.open_input(request)


def open_dataset_input(
    definition: "StoreDefinition", instance: "OpenInstance", spill: "Path"
) -> "DatasetInput":
    """Opens the input of a store with the rows' own keys.

    A table's dataset is the table at a transaction number. InvalidRequestError if the input has no
    datasets. `spill` is a folder for temporary files.
    """
    from sleeper.adjunct.inputs.opening import InputRequest

    request = InputRequest(definition, instance, spill)
    kind = KINDS.get(request.kind)
    if kind is None or not kind.has_datasets or not request.rest:
        raise InvalidRequestError(
            f"input {definition.input!r} has no datasets (expected {describe_kinds(True)})"
        )
    return cast("DatasetInput", open_input(request))
