"""`sleeper serve` without its optional packages."""

import sys

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
