"""Compaction jobs: the message (docs/formats.md, "Compaction messages") and the lease of a run."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from sleeper.clock import Clock
from sleeper.errors import DataError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.json_codec import Conversion, JsonCodec, Member, camel_case
from sleeper.lenient_json import StrictText, to_strict_text
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

    id: Annotated[StrictText, Member("jobId")]
    table_id: Annotated[TableId, Conversion(to_strict_text)]
    partition_id: Annotated[PartitionId, Conversion(to_strict_text)]
    inputs: Annotated[tuple[str, ...], Member("inputFiles", optional=True)] = field(
        default_factory=tuple
    )
    created_ms: int = field(kw_only=True)

    def to_json(self) -> str:
        """Returns the message's body."""
        sent = self if len(self.inputs) <= _INPUTS_SENT_MAX else replace(self, inputs=())
        return _CODEC.format(sent)


_CODEC = JsonCodec(CompactionJob, camel_case)


def parse_compaction_job(body: str) -> CompactionJob:
    """Parses a message. InvalidRequestError if it is not a compaction job."""
    return _CODEC.parse(body, "compaction message")


def new_compaction_job_id() -> str:
    """Returns a random id. Ids of released jobs are never reused."""
    return secrets.token_hex(12)


_LOST = (DataError, InvalidRequestError, NotFoundError, StateMovedOnError)


class Lease:
    """Renews the job's lease in the background, at a third of its time, within a `with` block.

    Entering renews at once, because the job may have waited long in its queue:
    StateMovedOnError if it no longer holds its files.
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
