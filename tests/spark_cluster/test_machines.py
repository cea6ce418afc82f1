"""Machines of tests end with their test, in whatever way it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.spark_cluster.machines import ROOT, Network

_PROGRAM = """
import sys
from pathlib import Path
from tests.spark_cluster.machines import joined_machines

with joined_machines(["a", "b"], "here", Path(sys.argv[1])) as network:
    print(*(machine.pid for machine in network.machines), flush=True)
    sys.stdin.readline()
"""


def test_a_machine_reaches_the_others_by_name_and_this_one_by_address(network: Network) -> None:
    first, second, _ = network.machines
    assert first.run("hostname").strip() == first.name
    assert first.run(f"getent hosts {second.name}").split() == [second.address, second.name]
    own = first.run("ip -4 -brief address").split()
    assert f"{first.address}/24" in own


@pytest.mark.parametrize("ends_by", [signal.SIGKILL, None], ids=["killed", "ended"])
def test_no_process_and_no_link_of_machines_is_left(
    network: Network, tmp_path: Path, ends_by: signal.Signals | None
) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        first = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
        link = f"sleeper{program.pid}"
        assert (len(first), has_link(link)) == (2, True)
        if ends_by is not None:
            program.send_signal(ends_by)
        program.communicate("\n")
    _, living = psutil.wait_procs(first, timeout=30)
    assert living == []
    deadline = time.monotonic() + 30
    while has_link(link):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_link(name: str) -> bool:
    return Path("/sys/class/net", name).exists()
