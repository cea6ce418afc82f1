"""Arguments are converted directly as typer converts them."""

import itertools
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperArgument, TyperOption, _TyperParameter
from typer.testing import CliRunner

from sleeper.cli.conversion import convert_directly


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """A command with arguments of many types, which typer converts."""
    for kind in (TyperOption, TyperArgument):
        # An import of `sleeper.cli.main` may have changed them.
        monkeypatch.setattr(kind, "get_runtime_param", _TyperParameter.get_runtime_param)
    found = typer.Typer()

    @found.command()
    def show(
        texts: Annotated[list[str] | None, typer.Argument()] = None,
        text: Annotated[str, typer.Option(envvar="SHOWN_TEXT")] = "t",
        number: Annotated[int | None, typer.Option(min=-2, max=10**20)] = None,
        numbers: Annotated[list[int] | None, typer.Option("--numbers")] = None,
        clamped: Annotated[int, typer.Option(min=0, max=9, clamp=True)] = 3,
        colour: Annotated[Colour, typer.Option(case_sensitive=False)] = Colour.RED,
        exact: Annotated[Colour | None, typer.Option()] = Colour.GREEN,
        path: Annotated[Path | None, typer.Option()] = None,
        is_set: Annotated[bool, typer.Option("--set/--no-set")] = False,
        pair: Annotated[tuple[int, str] | None, typer.Option()] = None,
        parsed: Annotated[Any, typer.Option(parser=len)] = None,
    ) -> None:
        print([texts, text, number, numbers, clamped, colour, exact, path, is_set, pair, parsed])

    return found


_LINES: list[list[str]] = [
    [],
    ["a", "1", ""],
    ["--text", ""],
    ["--text", "\udcff"],
    ["\udcff"],
    *(
        [f"--{name}", value]
        for name, value in itertools.product(
            ("number", "numbers", "clamped"),
            ("0", "7", "-2", "-3", "+5", "007", "1_0", " 8 ", "5.0", "5.5", "x", "", "٣", "9" * 30),
        )
    ),
    ["--numbers", "1", "--numbers", "2"],
    *([f"--{name}", value] for name in ("colour", "exact") for value in ("red", "RED", "blue", "")),
    ["--path", "somewhere"],
    ["--path", "/"],
    ["--set"],
    ["--no-set"],
    ["--pair", "1", "b"],
    ["--pair", "b", "1"],
    ["--parsed", "four"],
]


def test_direct_conversion_has_the_results_and_errors_of_typer(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_all() -> list[tuple[int, str, str]]:
        results = [CliRunner().invoke(app, line) for line in _LINES]
        results.append(CliRunner().invoke(app, [], env={"SHOWN_TEXT": "from outside"}))
        return [(each.exit_code, each.stdout, each.stderr) for each in results]

    expected = run_all()
    assert {status for status, _, _ in expected} == {0, 2}
    for kind in (TyperOption, TyperArgument):
        # What this sets is restored after the test, so what `convert_directly` sets is too.
        monkeypatch.setattr(kind, "get_runtime_param", _TyperParameter.get_runtime_param)
    convert_directly()
    assert run_all() == expected
