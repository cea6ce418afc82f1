import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sleeper.local.instance import create_local_instance

_SCRIPT = """
import sqlite3, threading, time
from sleeper.jobs.process import interrupted_by_sigterm

def lose_the_exception():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass

def stay_in_native_code():
    threading.Timer(0.3, lambda: print("ready", flush=True)).start()
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000000)"
        " SELECT count(*) FROM n"
    ).fetchall()

def stop_slowly():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        pass

def stop():
    print("ready", flush=True)
    time.sleep(60)

try:
    with interrupted_by_sigterm(1.5):
        {work}()
except KeyboardInterrupt:
    print("stopped", flush=True)
else:
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("work", "status", "output"),
    [
        ("lose_the_exception", 128 + signal.SIGTERM, "ready\n"),
        ("stay_in_native_code", 128 + signal.SIGTERM, ""),
        ("stop_slowly", 128 + signal.SIGTERM, ""),
        ("stop", 0, "stopped\n"),
    ],
)
def test_a_process_ends_soon_after_the_first_sigterm(work: str, status: int, output: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT.format(work=work)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, rest) == (status, output)


_SERVER = """
import contextlib, sys, threading, time
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.opening import open_instance
from sleeper.serve import server

def start_thread_that_does_not_end(url):
    threading.Thread(target=time.sleep, args=(60,)).start()
    print("ready", flush=True)

server.SIGTERM_SECONDS_MAX = 0.5
with contextlib.suppress(KeyboardInterrupt), interrupted_by_sigterm():
    server.serve(open_instance(sys.argv[1]), "127.0.0.1", 0, None, start_thread_that_does_not_end)
"""


@pytest.mark.slow
def test_a_server_ends_soon_after_sigterm_although_a_thread_does_not_end(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "test", {})
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(tmp_path / "instance")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
