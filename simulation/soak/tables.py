"""The tables of a soak, and the receiver of the exports of one."""

import json
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.soak.journal import Journal
from tests.servers.http_receivers import Answer, Request

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
SHARED, BY_LEAF, LATEST, SNAPSHOT = "shared", "leaves", "latest", "snap"
APPENDING = (SHARED, BY_LEAF)
TABLES = (SHARED, BY_LEAF, LATEST, SNAPSHOT)
EXPORTED, QUEUE = BY_LEAF, "copies"
_COMMON = {
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.partition.splitting.threshold": "3000",
    "sleeper.table.compaction.files.batch.size": "4",
    "sleeper.table.bulk.import.min.leaf.partitions": "2",
    "sleeper.table.ingest.batcher.job.min.size": "0",
    "sleeper.table.ingest.batcher.file.max.age.seconds": "2",
    "sleeper.table.ingest.batcher.ingest.queue": "standard_ingest",
}
PROPERTIES: Mapping[str, Mapping[str, str]] = {
    SHARED: _COMMON,
    BY_LEAF: {**_COMMON, "sleeper.table.ingest.file.writing.strategy": "one_file_per_leaf"},
    LATEST: {**_COMMON, "sleeper.table.rows": "latest"},
    SNAPSHOT: {
        "sleeper.table.gc.delay.minutes": "0",
        "sleeper.table.type": "snapshot",
    },
}


@dataclass
class Receiver:
    """Receives exports over HTTP, and fails sometimes: before or after it has kept a batch."""

    chance: random.Random
    journal: Journal
    probability: float = 0.0
    newest: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    received: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def respond(self, request: Request) -> Answer:
        """Answers a batch. A later sequence number of a key replaces an earlier one."""
        with self.lock:
            if self._fails("unavailable"):
                return Answer(503)
            for each in json.loads(request.body)["exports"]:
                key, sequence = int(each["key"]), int(each["sequence"])
                value = None if each["value"] is None else each["value"]["v"]
                self.received += 1
                if sequence >= self.newest.get(key, (-1, None))[0]:
                    self.newest[key] = (sequence, value)
            return Answer(500) if self._fails("lost response") else Answer(200)

    def rows(self) -> list[tuple[int, str]]:
        """Returns the rows that the receiver now has."""
        with self.lock:
            return [(key, value) for key, (_, value) in self.newest.items() if value is not None]

    def _fails(self, kind: str) -> bool:
        fails = self.chance.random() < self.probability
        if fails:
            self.journal.fault(kind, "receiver")
        return fails
