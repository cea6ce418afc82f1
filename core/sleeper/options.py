"""Options of users, each declared once: a field of a dataclass.

    @dataclass(frozen=True)
    class Copy:
        name: Annotated[str, Option("Name of the copy.", "NAME", is_argument=True)]
        limit: Annotated[int | None, Option("Rows to copy.", "N")] = None

A method of the Python API that `takes(Copy)` has the parameters `name` and `limit`, for type
checkers, `inspect` and the pages too. A command that has `options_of(Copy)` (`sleeper.cli.options`)
has the argument `NAME` and the option `--limit N`. Both receive a `Copy`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, get_type_hints

P = ParamSpec("P")
Owner = TypeVar("Owner")
Options = TypeVar("Options")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line shows a field: its help, and a word for its value.

    The option has the name of the field, unless `flag` is another one. A field that is true by
    default is switched off, by `--no-` and its name. With `is_required` it has a default only in
    Python. A secret is given by a reference, never by its value: see `secret`.
    """

    help: str
    metavar: str | None = None
    flag: str | None = None
    is_argument: bool = False
    is_required: bool = False


def secret(help_begin: str) -> Option:
    """Returns the option of a secret, which `sleeper.runs.secrets` reads at the named place."""
    forms = "env:NAME, file:PATH, or secret:NAME-OR-ARN in AWS Secrets Manager."
    return Option(f"{help_begin}: {forms}", "REFERENCE")


def takes(
    options: Callable[P, Options],
) -> Callable[[Callable[[Owner, Options], Result]], Callable[Concatenate[Owner, P], Result]]:
    """Lets a method of one parameter, a dataclass, take the fields of the class instead."""

    def decorate(method: Callable[[Owner, Options], Result]) -> Callable[..., Result]:
        @wraps(method)
        def call(self: Owner, *arguments: P.args, **named: P.kwargs) -> Result:
            try:
                signature.bind(self, *arguments, **named)
            except TypeError as error:
                raise TypeError(f"{method.__qualname__}() {error}") from None
            return method(self, options(*arguments, **named))

        hints = {**get_type_hints(options), "return": method.__annotations__["return"]}
        first = next(iter(inspect.signature(method).parameters.values()))
        fields = [
            each.replace(annotation=hints[each.name])
            for each in inspect.signature(options).parameters.values()
        ]
        signature = inspect.Signature([first, *fields], return_annotation=hints["return"])
        call.__annotations__ = hints
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.options = options  # type: ignore[attr-defined]
        return call

    return decorate
