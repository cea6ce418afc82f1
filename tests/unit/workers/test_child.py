"""The start of worker processes."""

import subprocess
import sys

_CHILD = "from sleeper.workers.child import start_child; start_child('a worker')"


def test_a_process_that_ends_before_its_input_is_closed_ends_normally() -> None:
    command = [sys.executable, "-c", _CHILD, "folder"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
