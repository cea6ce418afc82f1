"""The code folder of an instance."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.local.folder import CodeFolder
from sleeper.user_code.loading import UserCode
from sleeper.user_code.registry import Registry
from tests.wheels import isolated_user_code


@pytest.fixture
def code(tmp_path: Path) -> Iterator[UserCode]:
    folder = tmp_path / "instance" / "code"
    with isolated_user_code():
        yield UserCode(Registry(CodeFolder(folder)), folder / "unpacked")
