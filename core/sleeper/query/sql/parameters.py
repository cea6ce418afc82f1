"""Values of the parameters of a statement, such as `$id` and `$1`, which the engine binds."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.errors import InvalidRequestError
from sleeper.query.sql.text import find_parameters

Parameters = Mapping[str, Any] | Sequence[Any]
"""Values by name, for `$name`, or a list of values, for `$1`, `$2` and so on."""


def bind_parameters(statement: str, values: Parameters | None) -> dict[str, pa.Scalar]:
    """Returns the values of the parameters of a statement, by name.

    Raises `InvalidRequestError` for a parameter without a value, a value without a parameter, and
    a value that is no number, text, bytes, truth value, date, time or None.
    """
    named = _name_values(values)
    used = find_parameters(statement)
    for name in sorted(used - named.keys()):
        raise InvalidRequestError(f"parameter ${name} has no value (expected one by its name)")
    for name in sorted(named.keys() - used):
        raise InvalidRequestError(
            f"the statement has no parameter ${name} (expected a parameter for each value)"
        )
    return {name: _make_scalar(name, value) for name, value in named.items()}


def _name_values(values: Parameters | None) -> dict[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        for name in values:
            if not isinstance(name, str):
                raise InvalidRequestError(f"parameter name {name!r:.100} (expected text)")
        return {name.removeprefix("$"): value for name, value in values.items()}
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return {str(number): value for number, value in enumerate(values, 1)}
    raise InvalidRequestError(
        f"parameters are {type(values).__name__} {values!r:.100} (expected a mapping or a list)"
    )


def _make_scalar(name: str, value: Any) -> pa.Scalar:
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        scalar = None
        cause: Exception | None = error
    else:
        cause = None
    if scalar is None or pa.types.is_nested(scalar.type):
        raise InvalidRequestError(
            f"parameter ${name} is {type(value).__name__} {value!r:.100} (expected a number, text, "
            "bytes, truth value, date, time or None)"
        ) from cause
    return scalar
