"""Dead-letter queues in SQS. A listing receives the messages and makes them visible again.

A process that dies during a listing loses no message: the visibility timeout ends. On a FIFO queue
a listing has the first ten messages of each group, because SQS holds back the others.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sleeper.aws.errors import translate_errors
from sleeper.aws.queue import RECEIVE_MAX, Outgoing, count_messages, is_fifo, send_batches
from sleeper.errors import NotFoundError, UnavailableError
from sleeper.jobs.queue import DeadLetter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_LIST_SECONDS = 30
_REDRIVE_SECONDS = 120
# Without a wait, SQS queries only some of its servers.
_WAIT_SECONDS = 1

Page = list[Any]

BodyRewriter = Callable[[str, str, str], str]
"""Returns the body of a redriven message, which has a new id and a new sender.

The arguments are the body, the id and the sender of the dead letter.
"""


@dataclass(frozen=True, slots=True)
class SqsDeadLetters:
    """Implements `sleeper.jobs.queue.DeadLetters` for one queue. Safe for threads."""

    client: "SQSClient"
    name: str
    url: str
    dead_letters_url: str
    rewrite_body: BodyRewriter = lambda body, _id, _sender: body
    wait_seconds: int = _WAIT_SECONDS

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """See the port. SQS does not record the time of death."""
        messages: dict[str, Any] = {}
        if not sum(count_messages(self.client, self.name, self.dead_letters_url)):
            return ()
        try:
            for page in self._receive_all(_LIST_SECONDS):
                messages.update((raw["MessageId"], raw) for raw in page)
                if len(messages) >= limit:
                    break
        finally:
            self._unhide(messages.values())
        letters = sorted(map(_dead_letter, messages.values()), key=lambda letter: letter.sent_ms)
        return tuple(letters[:limit])

    def redrive(self) -> int:
        """See the port. It keeps groups and attributes. After a crash some may be sent twice."""
        sent: set[str] = set()
        for page in self._receive_all(_REDRIVE_SECONDS):
            # A message that died again during the redrive would be sent for ever.
            self._unhide(raw for raw in page if raw["MessageId"] in sent)
            waiting = [raw for raw in page if raw["MessageId"] not in sent]
            if not waiting:
                break
            # A batch may fail in part, which would break the order of a FIFO group.
            for some in [[raw] for raw in waiting] if is_fifo(self.url) else [waiting]:
                messages = [self._redriven_message(raw) for raw in some]
                sent.update(send_batches(self.client, self.name, self.url, messages))
                self._delete(some)
        return len(sent)

    def delete(self, message_id: str) -> None:
        others: dict[str, Any] = {}
        try:
            for page in self._receive_all(_LIST_SECONDS):
                messages = [raw for raw in page if raw["MessageId"] == message_id]
                others.update((r["MessageId"], r) for r in page if r not in messages)
                if messages:
                    self._delete(messages)
                    return
        finally:
            self._unhide(others.values())
        raise NotFoundError(f"queue {self.name!r} has no dead letter {message_id!r}")

    def _receive_all(self, hidden_seconds: int) -> Iterator[Page]:
        """Yields pages of messages, hidden for this time, until no visible message is left."""
        while True:
            with translate_errors(f"queue {self.name!r}"):
                response = self.client.receive_message(
                    QueueUrl=self.dead_letters_url,
                    MaxNumberOfMessages=RECEIVE_MAX,
                    VisibilityTimeout=hidden_seconds,
                    WaitTimeSeconds=self.wait_seconds,
                    MessageSystemAttributeNames=["All"],
                    MessageAttributeNames=["All"],
                )
            page = response.get("Messages", [])
            if not page:
                return
            yield page

    def _redriven_message(self, raw: dict[str, Any]) -> Outgoing:
        message_id, attributes = raw["MessageId"], raw["Attributes"]
        return Outgoing(
            self.rewrite_body(raw["Body"], message_id, attributes.get("SenderId", "")),
            attributes.get("MessageGroupId"),
            # SQS ignores a repeat of this id for five minutes.
            f"redriven-{message_id}",
            raw.get("MessageAttributes", {}),
        )

    def _delete(self, messages: Iterable[dict[str, Any]]) -> None:
        with translate_errors(f"queue {self.name!r}"):
            response = self.client.delete_message_batch(
                QueueUrl=self.dead_letters_url, Entries=_entries(messages)
            )
        if failed := response.get("Failed"):
            raise UnavailableError(
                f"queue {self.name!r}: {len(failed)} dead letters could not be deleted: "
                f"{failed[0].get('Code')}"
            )

    def _unhide(self, messages: Iterable[dict[str, Any]]) -> None:
        """Makes messages visible at once. After an error the visibility timeout does it."""
        entries: Page = [{**entry, "VisibilityTimeout": 0} for entry in _entries(messages)]
        for start in range(0, len(entries), RECEIVE_MAX):
            with translate_errors(f"queue {self.name!r}"):
                self.client.change_message_visibility_batch(
                    QueueUrl=self.dead_letters_url, Entries=entries[start : start + RECEIVE_MAX]
                )


def _entries(messages: Iterable[dict[str, Any]]) -> Page:
    return [{"Id": str(i), "ReceiptHandle": raw["ReceiptHandle"]} for i, raw in enumerate(messages)]


def _dead_letter(raw: dict[str, Any]) -> DeadLetter:
    attributes = raw["Attributes"]
    return DeadLetter(
        message_id=raw["MessageId"],
        body=raw["Body"],
        receives=int(attributes["ApproximateReceiveCount"]),
        sent_ms=int(attributes["SentTimestamp"]),
        died_ms=None,
        group=attributes.get("MessageGroupId"),
    )
