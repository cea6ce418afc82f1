"""An instance's code folder, and a process that forgets what it loaded."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.local.code_folder import CodeFolder
from sleeper.user_code.loading import UserCode
from sleeper.user_code.registry import Registry, unpacked_on_path


@pytest.fixture
def code(tmp_path: Path) -> Iterator[UserCode]:
    modules = set(sys.modules)
    folder = tmp_path / "instance" / "code"
    yield UserCode(Registry(CodeFolder(folder)), folder / "unpacked")
    for entry in unpacked_on_path():
        sys.path.remove(entry)
    for name in set(sys.modules) - modules:
        if tmp_path.as_posix() in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
