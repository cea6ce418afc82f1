"""A server that is killed while clients post rows: every acknowledged row is there, once.

The seed is printed; `SLEEPER_TEST_SEED` repeats its choices, though not the machine's timing.
"""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx

from sleeper.admin.tables import create_table
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.serve.tokens import TOKEN_VARIABLE
from tests.seeds import choose_seed

SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
CLIENTS = 4
KILLS = 2
TOKEN = "a-token-of-some-length"
SERVE = "from sleeper.cli.main import main; main()"


def start_server(folder: Path) -> "tuple[subprocess.Popen[str], str]":
    command = [sys.executable, "-c", SERVE, "--instance", str(folder), "serve", "--port", "0"]
    environment = {**os.environ, TOKEN_VARIABLE: TOKEN}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    return process, process.stderr.readline().split()[-1]


class Client(threading.Thread):
    """Posts rows one after another until the server is gone, and repeats the last one later."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.next_key = first
        self.url = ""
        self.acknowledged: list[int] = []
        self.has_posted = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            while True:
                key = self.next_key
                try:
                    answer = client.post(
                        f"{self.url}/tables/t/rows",
                        content=f'{{"k": {key}, "v": "row {key}"}}',
                        headers={
                            "Content-Type": "application/x-ndjson",
                            "Idempotency-Key": f"row-{key}",
                            "Authorization": f"Bearer {TOKEN}",
                        },
                    )
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                self.acknowledged.append(key)
                self.next_key += 1
                if len(self.acknowledged) % 3 == 0:
                    self.has_posted.set()


def test_acknowledged_rows_survive_a_kill_and_retries_add_no_row_twice(tmp_path: Path) -> None:
    seed = choose_seed()
    chance = random.Random(seed)
    folder = tmp_path / "instance"
    create_local_instance(folder, "test", {})
    instance = open_local_instance(folder)
    create_table(instance, "t", SCHEMA, split_points=[10**6])
    acknowledged: list[int] = []
    next_keys = [client * 10**6 for client in range(CLIENTS)]
    for _ in range(KILLS):
        process, url = start_server(folder)
        clients = [Client(first) for first in next_keys]
        for client in clients:
            client.url = url
            client.start()
        for client in clients:
            assert client.has_posted.wait(60)
        chance.choice(clients).join(chance.random() * 0.1)
        process.kill()
        process.communicate()
        for client in clients:
            client.join()
            acknowledged += client.acknowledged
        # Requests without a response are repeated under their keys by the next clients.
        next_keys = [client.next_key for client in clients]
    with open_query(instance, "t", Query()) as result:
        rows = Counter(result.read_all()["k"].to_pylist())
    instance.close()
    assert len(acknowledged) >= KILLS * CLIENTS * 3
    assert set(acknowledged) <= set(rows)
    assert set(rows.values()) == {1}
    # At most the last request of each client came through without its response.
    assert len(rows) <= len(acknowledged) + CLIENTS
