"""Arguments and options of commands from the fields of a dataclass (`sleeper.options`)."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from sleeper.cli.arguments import complete_table, parse_settings
from sleeper.cli.output import set_parameters
from sleeper.options import Option

Work = Callable[..., None]


def options_of(cls: type) -> Callable[[Work], Work]:
    """Lets a function of an instance and of a dataclass have the fields of the class as options.

    Required options come first, and further parameters of the function last.
    """
    hints = get_type_hints(cls, include_extras=True)
    fields = [_Field(each, *_parse_hint(hints[each.name])) for each in _parameters(cls)]
    fields.sort(key=lambda each: not each.is_required)

    def decorate(work: Work) -> Work:
        @wraps(work)
        def command(instance: Any, **arguments: Any) -> None:
            given = {each.field.name: each.read(arguments.pop(each.name)) for each in fields}
            options = {name: value for name, value in given.items() if value is not None}
            work(instance, cls(**options), **arguments)

        first, _, *others = _parameters(work)
        set_parameters(command, [first, *(each.parameter() for each in fields), *others])
        return command

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _parse_hint(hint: Any) -> tuple[Any, Option]:
    kind, *marks = get_args(hint)
    (option,) = (each for each in marks if isinstance(each, Option))
    return kind, option


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a dataclass, which a command has as an argument or option."""

    field: inspect.Parameter
    kind: Any
    option: Option

    @property
    def name(self) -> str:
        """The name of the command's parameter. A flag can only change its field's value."""
        return f"no_{self.field.name}" if self.field.default is True else self.field.name

    @property
    def is_required(self) -> bool:
        return self.option.is_required or self.field.default is inspect.Parameter.empty

    def read(self, given: Any) -> Any:
        """Returns the value of the field; None if it has its default."""
        if self.field.default is True:
            return not given
        return given and parse_settings(given) if self._has(Mapping) else given

    def parameter(self) -> inspect.Parameter:
        """Returns the command's parameter, from which typer derives the command line."""
        option, kind, default = self.option, self.kind, self.field.default
        if self._has(Mapping) or self._has(Sequence):
            kind, default = list[str], None
        elif kind is bool:
            default = False
        elif str in get_args(kind):
            kind = str
        if not self.is_required and default is None:
            kind = kind | None
        flags = () if option.is_argument else (option.flag or f"--{self.name.replace('_', '-')}",)
        declare: Any = typer.Argument if option.is_argument else typer.Option
        complete = complete_table if option.metavar == "TABLE" else None
        mark = declare(*flags, metavar=option.metavar, help=option.help, autocompletion=complete)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.is_required else default,
            annotation=Annotated[kind, mark],
        )

    def _has(self, kind: type) -> bool:
        return any(get_origin(each) is kind for each in (self.kind, *get_args(self.kind)))
