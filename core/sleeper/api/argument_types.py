"""Checks the types of the arguments of the API's methods, so that a wrong one is named at once.

The annotations of a method state what is checked: numbers, text, truth values, mappings, and
sequences and iterables, which text is not although Python can iterate it.
"""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sleeper.errors import InvalidRequestError

C = TypeVar("C", bound=type)
M = TypeVar("M", bound=Callable[..., Any])
_OWN_CHECKS = "_checks_own_arguments"

_NUMBER_MAX = 2**63 - 1
Check = Callable[[object], bool]


def _is_number(value: object) -> bool:
    # NumPy has integers of its own.
    if not isinstance(value, Integral) or isinstance(value, bool):
        return False
    return abs(int(value)) <= _NUMBER_MAX


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_text_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(each, str) for pair in value.items() for each in pair
    )


def check_argument_types(cls: C) -> C:
    """Lets the public methods of a class raise InvalidRequestError for arguments of wrong types.

    Leaves out those that `checks_own_arguments` marks.
    """
    for name, method in list(vars(cls).items()):
        is_public = inspect.isfunction(method) and not name.startswith("_")
        if is_public and not hasattr(method, _OWN_CHECKS):
            setattr(cls, name, _checked(method))
    return cls


def checks_own_arguments(method: M) -> M:
    """Marks a method whose own errors for arguments of wrong types say more."""
    setattr(method, _OWN_CHECKS, True)
    return method


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(method).parameters
    names = list(parameters)
    takes_others = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    checks: dict[str, tuple[str, Check]] | None = None

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal checks
        unknown = None if takes_others else next((n for n in named if n not in parameters), None)
        if unknown is not None and arguments:
            raise unexpected_keyword(type(arguments[0]), method.__name__, unknown)
        if checks is None:
            # At the first call, when all modules that annotations name are loaded.
            checks = _find_checks(method)
        for name, value in (*zip(names, arguments, strict=False), *named.items()):
            if name in checks:
                expected, is_valid = checks[name]
                if not is_valid(value):
                    raise InvalidRequestError(
                        f"{name} is {type(value).__name__} {value!r:.100} (expected {expected})"
                    )
        return method(*arguments, **named)

    return call


def unexpected_keyword(cls: type, method: str, name: str) -> TypeError:
    """Returns the error for an argument that the method of the class does not have."""
    return TypeError(f"{cls.__name__}.{method}() got an unexpected keyword argument {name!r}")


def _find_checks(method: Callable[..., Any]) -> dict[str, tuple[str, Check]]:
    try:
        hints = get_type_hints(method)
    except NameError:
        return {}  # an annotation for type checkers only
    by_name = {name: _find_check(hint) for name, hint in hints.items() if name != "return"}
    return {name: check for name, check in by_name.items() if check is not None}


def _find_check(hint: Any) -> tuple[str, Check] | None:
    """Returns what is expected and its check, None if anything else may be valid."""
    if get_origin(hint) in (Union, types.UnionType):
        others = [each for each in get_args(hint) if each is not type(None)]
        result = _find_check(others[0]) if len(others) == 1 else None
        if result is None:
            return None
        expected, is_valid = result
        return f"{expected} or None", lambda value: value is None or is_valid(value)
    if hint is str:
        return "text", lambda value: isinstance(value, str)
    if hint is bool:
        return "True or False", lambda value: isinstance(value, bool)
    if hint is int:
        return "an integer of 64 bits", _is_number
    if hint == Mapping[str, str]:
        return "a mapping of names to text", _is_text_mapping
    if get_origin(hint) in (Sequence, Iterable):
        return "a list", _is_list
    return None
