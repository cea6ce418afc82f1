import subprocess
import sys
from pathlib import Path

import pytest

from sleeper.aws.process_folder import ProcessFolder
from sleeper.errors import UnavailableError

HOLD = """
import sys
from pathlib import Path
from sleeper.aws.process_folder import ProcessFolder
folder = ProcessFolder(Path(sys.argv[1]))
(folder.spill() / "left").write_text("")
(folder.path() / "kept").write_text("")
print(folder.path().name, flush=True)
sys.stdin.read()
"""


def test_each_process_has_its_own_folder_and_later_ones_reuse_it(tmp_path: Path) -> None:
    first, second = ProcessFolder(tmp_path / "a" / "b"), ProcessFolder(tmp_path / "a" / "b")
    assert (first.path().name, second.path().name) == ("0", "1")
    assert first.path() == first.path()
    (first.spill() / "spilled").write_text("")
    (first.path() / "kept").write_text("")
    first.close()
    third = ProcessFolder(tmp_path / "a" / "b")
    assert third.path().name == "0"
    assert (third.path() / "kept").exists()
    assert list(third.spill().iterdir()) == []
    second.close()
    third.close()


def test_a_killed_process_s_folder_is_reused_without_its_spill_files(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        beside = ProcessFolder(tmp_path)
        assert beside.path().name == "1"
        process.kill()
    current = ProcessFolder(tmp_path)
    assert current.path().name == "0"
    assert (current.path() / "kept").exists()
    assert list(current.spill().iterdir()) == []
    beside.close()
    current.close()


def test_a_path_without_write_access_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="file"):
        ProcessFolder(tmp_path / "file").path()
