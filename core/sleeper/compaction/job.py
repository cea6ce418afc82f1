"""The message of a compaction job (docs/formats.md, "Compaction messages")."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Annotated

from sleeper.json_codec import Conversion, JsonCodec, Member, camel_case
from sleeper.lenient_json import StrictText, to_strict_text
from sleeper.partitions.partition import PartitionId
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
