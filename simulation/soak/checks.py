"""What must hold once faults have ended, apart from the rows of the tables."""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from simulation.soak.journal import Journal
from simulation.soak.model import Row
from simulation.soak.tables import TABLES, Receiver
from simulation.soak.world import World
from sleeper.clock import Clock
from sleeper.instance import Instance
from sleeper.workers.schedule import TABLE_OPERATIONS

_RESULTS = re.compile(r"^results: (.+)$", re.MULTILINE)
_SHOWN_MAX = 5


def describe_waiting(world: World, clock: Clock) -> list[str]:
    """Returns what is unfinished: messages, files of the batcher, assigned files."""
    with closing(world.open(clock)) as instance:
        return [*_describe_queues(instance), *_describe_tables(instance)]


def _describe_queues(instance: Instance) -> Iterable[str]:
    for name in instance.jobs.queues:
        counts = instance.jobs.queue(name).counts()
        if counts.dead:
            # An operator looks at them and returns them.
            instance.jobs.dead_letters(name).redrive()
        if name not in TABLE_OPERATIONS and (counts.unfinished or counts.dead):
            yield f"queue {name.value}: {counts}"


def _describe_tables(instance: Instance) -> Iterable[str]:
    requests = instance.jobs.file_requests()
    for name in TABLES:
        waiting = len(requests.waiting(instance.table(name).ref.id))
        if waiting:
            yield f"table {name}: {waiting} files wait for the batcher"
        with instance.table(name).state.reading() as state:
            jobs = state.jobs.count()
        if jobs:
            yield f"table {name}: files are assigned to {jobs} compaction jobs"


def check_receiver(receiver: Receiver, rows: Iterable[Row], journal: Journal) -> None:
    """Compares what the receiver of exports has with the rows of the table."""
    expected, received = Counter(rows), Counter(receiver.rows())
    journal.rows_checked += received.total()
    for what, rest in (("lacks", expected - received), ("also has", received - expected)):
        if rest:
            some = sorted(rest)[:_SHOWN_MAX]
            journal.problem(f"the receiver of exports {what} {rest.total()} rows, such as {some}")


def check_shape(world: World, clock: Clock, journal: Journal) -> None:
    """After a full compaction and a collection: one file a leaf, and no object beside them."""
    with closing(world.open(clock)) as instance:
        for name in TABLES:
            ref = instance.table(name).ref
            with instance.table(name).state.reading() as state:
                names = {f.path + s for f in state.files.all() for s in ("", *f.sidecars)}
                counts = [len(files) for _, files in state.files.leaf_references()]
            if any(count > 1 for count in counts):
                journal.problem(f"table {name}: leaves have {counts} files after a full compaction")
            listed = instance.storage.root.list_objects(ref.id)
            objects = {each.path for each in listed if "/data/" in each.path}
            for what, rest in (("orphans", objects - names), ("missing objects", names - objects)):
                if rest:
                    some = sorted(rest)[:_SHOWN_MAX]
                    journal.problem(f"table {name}: {len(rest)} {what}, such as {some}")


def location_of_results(answer: dict[str, Any]) -> str | None:
    """Returns where the rows of a finished query by message are; None if it failed."""
    is_finished = answer["status"] == 0 and '"state": "finished"' in answer["output"].split("\n")[0]
    match = _RESULTS.search(answer["error"])
    return match[1] if match and is_finished else None
