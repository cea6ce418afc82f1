"""The example of export queues: an index from counts to entities, in a real PostgreSQL."""

import importlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.export_queue.control import queue_status
from sleeper.schema.model import PrimitiveType
from tests.examples import examples
from tests.export_batches import make_batch, make_queue
from tests.seeds import choose_seed
from tests.servers.postgres import Postgres
from tests.system.export_runs import Run, running, wait_until
from tests.wheels import make_wheel

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "export_queue"
UPDATES, THREADS, ENTITIES, KILLS = examples(200), 8, 20, 3
"""There are this many updates and removals in all, by the threads together."""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports modules of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return lambda name: importlib.import_module(f"inverted_count.{name}")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    properties = {"sleeper.engine.threads": "1"}
    with sleeper.create_instance(tmp_path / "instance", properties) as opened:
        modules = {
            f"inverted_count.{path.stem}": path.read_text()
            for path in (EXAMPLE / "inverted_count").glob("*.py")
        }
        exporters = {"CountIndex": "inverted_count.count_index:CountIndex"}
        wheel = make_wheel(tmp_path, "inverted_count", modules, exporters=exporters)
        opened._ports.code.registry.add([wheel])
        yield opened


def test_an_index_of_counts_is_exact_although_exporters_are_killed(
    instance: sleeper.Instance, postgres_database: Postgres, example: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(postgres_database.password)
    entities = example("entities").Entities.create(
        instance,
        "python:CountIndex",
        options={"database": postgres_database.url},
        password=f"file:{secret}",
        buckets=16,
    )
    seed = choose_seed()
    finished = threading.Event()
    problems: list[BaseException] = []

    def update(worker: int) -> None:
        chosen = random.Random(f"{seed}/{worker}")
        try:
            for _ in range(UPDATES // THREADS):
                entity = f"entity {chosen.randrange(ENTITIES)}"
                if chosen.random() < 0.1:
                    entities.remove(entity)
                else:
                    entities.add(entity, chosen.randint(-3, 5))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=update, args=(number,)) for number in range(THREADS)]
    with running(instance._ports) as run:
        killer = threading.Thread(target=kill_at_random, args=(run, seed, finished))
        for thread in (*threads, killer):
            thread.start()
        for thread in threads:
            thread.join()
        finished.set()
        killer.join()
        assert problems == []
        wait_until(lambda: queue_status(instance._ports, "ici").lag == 0)
        wait_until(lambda: queue_status(instance._ports, "ici").pending == 0)
    counts = entities.counts()
    index = [line.split("|") for line in postgres_database.run("SELECT * FROM count_index")]
    assert sorted((entity, int(count)) for count, entity in index) == sorted(counts.items())
    assert queue_status(instance._ports, "ici").dead == 0


def kill_at_random(run: Run, seed: int, finished: threading.Event) -> None:
    """Kills exporters until all updates are committed, and a few times in any case."""
    chosen = random.Random(seed)
    killed = 0
    while not finished.is_set() or killed < KILLS:
        finished.wait(chosen.uniform(0.2, 1.5))
        run.kill_exporter()
        killed += 1


def test_exports_of_counts_may_arrive_twice_and_in_any_order(
    postgres_database: Postgres, example: Any
) -> None:
    url = f"{postgres_database.url}?password={postgres_database.password}"
    exporter = example("count_index").CountIndex({"database": url})
    values = {"old_count": PrimitiveType.LONG, "new_count": PrimitiveType.LONG}
    queue = make_queue("python:CountIndex", {"entity": PrimitiveType.STRING}, values)
    chosen = random.Random(choose_seed())
    exports, counts = [], dict[str, int]()
    for sequence in range(1, 201):
        entity = chosen.choice("abcde")
        # Counts come back to earlier values.
        new = chosen.choice([None, 0, 1, 2])
        exports.append(
            (entity, {"old_count": counts.pop(entity, None), "new_count": new}, sequence)
        )
        if new is not None:
            counts[entity] = new
    order = exports * 2
    chosen.shuffle(order)
    while order:
        batch = {export[2]: export for export in (order.pop() for _ in range(min(7, len(order))))}
        exporter.export(make_batch(queue, batch.values()))
    exporter.close()
    index = [line.split("|") for line in postgres_database.run("SELECT * FROM count_index")]
    assert {entity: int(count) for count, entity in index} == counts
    assert len(index) == len(counts)
