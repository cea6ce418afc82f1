from typer.testing import CliRunner

from sleeper import __version__
from sleeper.cli.main import app


def test_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"sleeper {__version__}\n")


def test_help_shows_the_usage() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_unknown_option_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["--no-such-option"]).exit_code == 2
