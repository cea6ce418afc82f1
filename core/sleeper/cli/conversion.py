"""Conversion of arguments without pydantic, which takes a quarter of a second to import.

Typer converts all arguments by pydantic, also those that are not given. Here plain arguments are
converted directly. Typer converts the others, and reports the errors of invalid ones.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperOption

from sleeper.lenient_json import is_unicode

_GETTER = "get_runtime_param"
_UNKNOWN = object()
_DIGITS_MAX = 18


def convert_directly() -> None:
    """Makes the options and arguments of typer convert plain values directly."""
    for kind in (TyperOption, TyperArgument):
        # Typer has no interface for this. Without the method, pydantic is imported as before.
        get_original = getattr(kind, _GETTER, None)
        if get_original is not None:
            setattr(kind, _GETTER, _make_getter(get_original))


def _make_getter(get_original: Callable[[Any], Any]) -> Callable[[Any], "_Conversion"]:
    return lambda parameter: _Conversion(
        partial(get_original, parameter), parameter.type_descriptor
    )


class _Conversion:
    """The conversion of a parameter, with the interface of `typer._coercion.RuntimeParam`."""

    def __init__(self, get_original: Callable[[], Any], descriptor: Any) -> None:
        self._get_original = get_original
        self._kind = descriptor.annotation
        self._info = descriptor.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns the converted value, of which `None` is an argument that is not given."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        converted = self._convert_list(value) if is_list else self._convert(self._kind, value)
        if converted is _UNKNOWN:
            return self._get_original().coerce(value, param=param, ctx=ctx)
        return converted

    def _convert_list(self, values: Any) -> Any:
        if get_origin(self._kind) is not list or not isinstance(values, list | tuple):
            return _UNKNOWN
        (kind,) = get_args(self._kind)
        converted = [self._convert(kind, value) for value in values]
        return _UNKNOWN if any(each is _UNKNOWN for each in converted) else converted

    def _convert(self, kind: Any, value: Any) -> Any:
        if self._info.parser is not None or not isinstance(kind, type):
            return _UNKNOWN
        if issubclass(kind, Enum):
            return _find_choice(kind, value)
        if kind is int:
            return self._convert_integer(value)
        is_plain = kind is str and type(value) is str and is_unicode(value)
        return value if is_plain else _UNKNOWN

    def _convert_integer(self, value: Any) -> Any:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value) if len(value) <= _DIGITS_MAX else _UNKNOWN
        if type(value) is not int:
            return _UNKNOWN
        low, high = self._info.min, self._info.max
        is_valid = (low is None or low <= value) and (high is None or value <= high)
        return value if is_valid else _UNKNOWN


def _find_choice(kind: type[Enum], value: Any) -> Any:
    """Returns the choice with exactly this text."""
    for choice in kind:
        if value is choice or (type(value) is str and value == str(choice.value)):
            return choice
    return _UNKNOWN
