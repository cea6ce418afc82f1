"""The ids of the requests whose rows are written together."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.fold import Fold
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    refused,
)

REQUEST_KIND = "write_request"
"""The kind under which the state remembers the id of a request."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The id of one caller's request, and the fingerprint of its content."""

    id: str
    content: bytes


@dataclass(frozen=True, slots=True)
class RecordRequests(Transaction):
    """Remembers the ids of requests whose rows are in the files of the next transaction.

    It is committed together with that `AddFiles`. If one of the ids is known, all are refused, and
    the writer leaves that request out.
    """

    kind: ClassVar[str] = "record_requests"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    requests: Annotated[tuple[WriteRequest, ...], Member("requests")]

    def validate(self, fold: Fold) -> Verdict:
        ids = {request.id for request in self.requests}
        if len(ids) < len(self.requests):
            return refused("a request id occurs twice (expected distinct ids)")
        for request in self.requests:
            earlier = fold.applied(request.id, REQUEST_KIND)
            if earlier is not None:
                number = earlier.number
                return refused(f"request {request.id} was committed by transaction {number}")
        return APPLY

    def apply(self, fold: Fold) -> None:
        number = fold.next_number + 1  # that of the files
        for request in self.requests:
            fold.remember(request.id, REQUEST_KIND, request.content, number)
