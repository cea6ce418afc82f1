"""`sleeper serve`: what ends it before it listens."""

import sys
from pathlib import Path
from typing import Any

import pytest

from sleeper import DISTRIBUTION
from sleeper.instance import Instance
from sleeper.serve import server
from sleeper.serve.tokens import Right, Tokens
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


@pytest.mark.parametrize("option", [(), ("--read-only",)], ids=["writes", "read-only"])
def test_a_new_token_is_printed_once_in_a_url(
    cities: Sleeper, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    given: list[Tokens] = []

    def serve(_instance: Instance, _host: str, _port: int, tokens: Tokens, *rest: Any) -> None:
        given.append(tokens)
        rest[0]("http://127.0.0.1:1")

    monkeypatch.setattr(server, "serve", serve)
    result = cities("serve", *option)
    (tokens,) = given
    assert tokens.open_right is Right.READ
    assert len(tokens.rights) == (0 if option else 1)
    assert result.stderr.count("#token=") == len(tokens.rights)
    for token, right in tokens.rights.items():
        assert right is Right.ADMIN
        assert f"http://127.0.0.1:1/#token={token}\n" in result.stderr
