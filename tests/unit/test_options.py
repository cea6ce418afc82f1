"""Options that are declared once, as methods of the Python API and as commands."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

from sleeper.api.argument_types import check_argument_types
from sleeper.cli.options import options_of
from sleeper.cli.output import set_parameters
from sleeper.errors import InvalidRequestError
from sleeper.options import Option, secret, takes


@dataclass(frozen=True)
class Copy:
    """The options of a copy."""

    name: Annotated[str, Option("Name of the copy.", "NAME", is_argument=True)]
    keys: Annotated[str | Sequence[str], Option("Fields.", "A", flag="--key")] = ()
    target: Annotated[str, Option("Table.", "TABLE", is_required=True)] = "null:"
    limit: Annotated[int | None, Option("Rows.", "N")] = None
    settings: Annotated[Mapping[str, str] | None, Option("Settings.", "NAME=VALUE")] = None
    password: Annotated[str | None, secret("Password")] = None
    replace: Annotated[bool, Option("Replace it.")] = False
    check: Annotated[bool, Option("Do not check it.")] = True


@check_argument_types
class Copies:
    """An API with one method."""

    @takes(Copy)
    def copy(self, new: Copy) -> Copy:
        """Copies."""
        return new


def _run(command: Callable[..., None], arguments: list[str]) -> Result:
    _, *parameters = inspect.signature(command).parameters.values()
    bound = partial(command, None)
    set_parameters(bound, parameters)
    application = typer.Typer(rich_markup_mode=None)
    application.command("copy")(bound)
    return CliRunner().invoke(application, arguments)


def test_a_method_takes_the_fields_by_place_and_by_name() -> None:
    assert Copies().copy("a", "b", limit=3) == Copy("a", "b", limit=3)


def test_the_signature_of_a_method_has_the_types_and_defaults_of_the_fields() -> None:
    assert str(inspect.signature(Copies.copy)) == (
        "(self, name: str, keys: str | collections.abc.Sequence[str] = (), target: str = 'null:', "
        "limit: int | None = None, settings: collections.abc.Mapping[str, str] | None = None, "
        "password: str | None = None, replace: bool = False, check: bool = True) -> "
        "tests.unit.test_options.Copy"
    )


def test_wrong_arguments_of_a_method_are_named() -> None:
    copies = Copies()
    with pytest.raises(TypeError, match=r"^Copies.copy\(\) missing a required argument: 'name'"):
        copies.copy()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"copy\(\) got an unexpected keyword argument 'lmit'"):
        copies.copy("a", lmit=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequestError, match="limit is str '3'"):
        copies.copy("a", limit="3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "--target", "t"], Copy("a", target="t")),
        (
            ["a", "--target=t", "--key=k", "--key=l", "--limit=3", "--settings=x=1", "--no-check"],
            Copy("a", ["k", "l"], "t", 3, {"x": "1"}, check=False),
        ),
        (
            ["a", "--target=t", "--replace", "--password=env:P", "--dry-run"],
            Copy("a", target="t", replace=True, password="env:P"),
        ),
    ],
)
def test_a_command_has_the_fields_as_options(arguments: list[str], expected: Copy) -> None:
    received = []

    @options_of(Copy)
    def command(
        _instance: object, new: Copy, dry_run: Annotated[bool, typer.Option("--dry-run")] = False
    ) -> None:
        received.append((new, dry_run))

    result = _run(command, arguments)
    assert result.exit_code == 0, result.output
    assert received == [(expected, "--dry-run" in arguments)]


def test_a_command_needs_options_that_only_python_has_a_default_for() -> None:
    @options_of(Copy)
    def command(_instance: object, new: Copy) -> None:
        raise AssertionError(new)

    result = _run(command, ["a"])
    assert (result.exit_code, "Missing option '--target'" in result.output) == (2, True)
