"""Which errors settle a message: trying it again changes nothing, the tracker has the reason.

What a compaction or a split needs is found anew from the table's state, but an ingest is only
in its message: where a person has to mend something first, that must not be lost.
"""

from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
)
from sleeper.wiring.queue_name import QueueName

_FOUND_ANEW = (InvalidRequestError, NotFoundError, StateMovedOnError, DataError)

SETTLED_ERRORS: dict[QueueName, tuple[type[SleeperError], ...]] = {
    QueueName.INGEST: (InvalidRequestError, NotFoundError),
    QueueName.INGEST_BATCHER: (InvalidRequestError,),
    QueueName.COMPACTION: _FOUND_ANEW,
    QueueName.SPLITTING: _FOUND_ANEW,
    # What a query's run raises is worth another try: all else is in its tracker.
    QueueName.QUERY: (),
    QueueName.LEAF_QUERY: (),
}
