"""Compaction jobs: the message (docs/formats.md, "Compaction messages") and the lease of a run."""

import json
import secrets
from dataclasses import dataclass
from typing import Self

from sleeper.clock import Clock
from sleeper.errors import DataError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.partitions.partition import PartitionId
from sleeper.renewal import Renewal
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import RenewLeases
from sleeper.tables import TableId

_INPUTS_SENT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A merge of files of a partition into one.

    Workers merge the files that the job holds in the state. `inputs` informs readers of the
    queue, and is empty in messages of more than 1,000 files.
    """

    id: str
    table_id: TableId
    partition_id: PartitionId
    inputs: tuple[str, ...]
    created_ms: int

    def to_json(self) -> str:
        """Returns the message's body."""
        raw = {
            "jobId": self.id,
            "tableId": self.table_id,
            "partitionId": self.partition_id,
            "inputFiles": list(self.inputs) if len(self.inputs) <= _INPUTS_SENT_MAX else [],
            "createdMs": self.created_ms,
        }
        return json.dumps(raw, separators=(",", ":"))


def new_compaction_job_id() -> str:
    """Returns a random id. Ids of released jobs are never reused."""
    return secrets.token_hex(12)


def compaction_job_from_json(body: str) -> CompactionJob:
    """Parses a message. InvalidRequestError if it is not a compaction job."""
    try:
        raw = json.loads(body)
        inputs = tuple(str(path) for path in raw.get("inputFiles", ()))
        texts = [raw[name] for name in ("jobId", "tableId", "partitionId")]
        if not all(isinstance(text, str) and text for text in texts):
            raise TypeError("ids must be text")
        job_id, table_id, partition_id = texts
        return CompactionJob(
            job_id, TableId(table_id), PartitionId(partition_id), inputs, int(raw["createdMs"])
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidRequestError(
            f"not a compaction job: {body[:200]!r}: expected jobId, tableId, partitionId, "
            f"inputFiles and createdMs ({error!r})"
        ) from error


_LOST = (DataError, InvalidRequestError, NotFoundError, StateMovedOnError)


class Lease:
    """Renews the job's lease in the background, at a third of its time, within a `with` block.

    Entering renews at once, because the job may have waited long in its queue:
    StateMovedOnError if it holds no files any more.
    """

    def __init__(self, store: StateStore, job_id: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._job_id = job_id
        self._seconds = seconds
        self._clock = clock
        # A failed renewal is repeated before the lease expires.
        self._renewal = Renewal(
            "lease renewal", self._renew, seconds / 3, ends_on=_LOST, extra={"job_id": job_id}
        )

    def __enter__(self) -> Self:
        self._renew()
        self._renewal.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._renewal.__exit__(*error)

    def check(self) -> None:
        """Raises StateMovedOnError if the job has been released."""
        if self._renewal.error is not None:
            raise self._renewal.error

    def _renew(self) -> None:
        with self._store.reading() as state:
            expiry_ms = state.moment(self._clock()) + int(self._seconds * 1000)
        self._store.commit_or_raise(RenewLeases((self._job_id,), expiry_ms))
