"""`sleeper serve`: what ends it before it listens."""

import sys
from pathlib import Path

import pytest

from sleeper import DISTRIBUTION
from tests.unit.cli.conftest import Sleeper


def test_missing_starlette_error_names_the_package(
    cities: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("starlette", "sleeper.serve"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    result = cities("serve")
    assert result.status == 1
    assert result.stderr.startswith("error: sleeper serve needs starlette")
    assert f"pip install '{DISTRIBUTION}[serve]'" in result.stderr


def test_the_token_of_a_file_is_checked(cities: Sleeper, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("too-short")
    result = cities("serve", "--token-file", str(file))
    assert result.status == 1
    assert "must have at least 16 characters" in result.stderr
    assert "too-short" not in result.stderr
