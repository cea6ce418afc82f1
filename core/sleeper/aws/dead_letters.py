"""Dead letters in SQS: a queue of their own, which is looked at by receiving.

A look hides them for a short while and shows them again; one that dies loses nothing. On a
FIFO queue it sees the first ten of each group, because the others come after these.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sleeper.aws.errors import translated
from sleeper.aws.queue import RECEIVE_MAX, Outgoing, count_messages, is_fifo, send_batches
from sleeper.errors import NotFoundError, UnavailableError
from sleeper.jobs.queue import DeadLetter

_LOOK_SECONDS = 30
_REDRIVE_SECONDS = 120
# SQS asks only some of its servers unless it waits.
_WAIT_SECONDS = 1

Page = list[Any]

RedrivenBody = Callable[[str, str, str], str]
"""What becomes of a body when the message gets a new id and a new sender: given it, its
message's id, and who sent it.
"""


class SqsDeadLetters:
    """Implements `sleeper.jobs.queue.DeadLetters` for one queue. Safe for threads."""

    def __init__(
        self,
        client: Any,
        name: str,
        url: str,
        dead_letters_url: str,
        redriven_body: RedrivenBody = lambda body, _id, _sender: body,
        wait_seconds: int = _WAIT_SECONDS,
    ) -> None:
        self._client = client
        self._name = name
        self._url = url
        self._dead_letters_url = dead_letters_url
        self._redriven_body = redriven_body
        self._wait_seconds = wait_seconds

    def list(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """See the port. When they died is not known."""
        found: dict[str, Any] = {}
        if not sum(count_messages(self._client, self._name, self._dead_letters_url)):
            return ()
        try:
            for page in self._receive_all(_LOOK_SECONDS):
                found.update((raw["MessageId"], raw) for raw in page)
                if len(found) >= limit:
                    break
        finally:
            self._show(found.values())
        letters = sorted(map(_letter, found.values()), key=lambda letter: letter.sent_ms)
        return tuple(letters[:limit])

    def redrive(self) -> int:
        """See the port. Body, group and attributes stay; one that dies sends some twice."""
        sent: set[str] = set()
        for page in self._receive_all(_REDRIVE_SECONDS):
            # What died again meanwhile would go round for ever.
            self._show(raw for raw in page if raw["MessageId"] in sent)
            waiting = [raw for raw in page if raw["MessageId"] not in sent]
            if not waiting:
                break
            # On a FIFO queue one by one: a batch may fail in part, and groups keep their order.
            for some in [[raw] for raw in waiting] if is_fifo(self._url) else [waiting]:
                messages = [self._redriven(raw) for raw in some]
                sent.update(send_batches(self._client, self._name, self._url, messages))
                self._delete(some)
        return len(sent)

    def delete(self, message_id: str) -> None:
        """See the port."""
        passed_over: dict[str, Any] = {}
        try:
            for page in self._receive_all(_LOOK_SECONDS):
                found = [raw for raw in page if raw["MessageId"] == message_id]
                passed_over.update((r["MessageId"], r) for r in page if r not in found)
                if found:
                    self._delete(found)
                    return
        finally:
            self._show(passed_over.values())
        raise NotFoundError(f"queue {self._name!r} has no dead letter {message_id!r}")

    def _receive_all(self, hidden_seconds: int) -> Iterator[Page]:
        """Pages of messages that are hidden for so long, until there is none left."""
        while True:
            with translated(f"queue {self._name!r}"):
                answer = self._client.receive_message(
                    QueueUrl=self._dead_letters_url,
                    MaxNumberOfMessages=RECEIVE_MAX,
                    VisibilityTimeout=hidden_seconds,
                    WaitTimeSeconds=self._wait_seconds,
                    MessageSystemAttributeNames=["All"],
                    MessageAttributeNames=["All"],
                )
            page = answer.get("Messages", [])
            if not page:
                return
            yield page

    def _redriven(self, raw: dict[str, Any]) -> Outgoing:
        message_id, attributes = raw["MessageId"], raw["Attributes"]
        return Outgoing(
            self._redriven_body(raw["Body"], message_id, attributes.get("SenderId", "")),
            attributes.get("MessageGroupId"),
            # A redrive that died and comes again within five minutes adds nothing.
            f"redriven-{message_id}",
            raw.get("MessageAttributes", {}),
        )

    def _delete(self, messages: Iterable[dict[str, Any]]) -> None:
        with translated(f"queue {self._name!r}"):
            answer = self._client.delete_message_batch(
                QueueUrl=self._dead_letters_url, Entries=_entries(messages)
            )
        if failed := answer.get("Failed"):
            raise UnavailableError(
                f"queue {self._name!r}: {len(failed)} dead letters could not be deleted: "
                f"{failed[0].get('Code')}"
            )

    def _show(self, messages: Iterable[dict[str, Any]]) -> None:
        """Lets them be received at once. If it fails, they can be a little later."""
        entries = [{**entry, "VisibilityTimeout": 0} for entry in _entries(messages)]
        for start in range(0, len(entries), RECEIVE_MAX):
            with translated(f"queue {self._name!r}"):
                self._client.change_message_visibility_batch(
                    QueueUrl=self._dead_letters_url, Entries=entries[start : start + RECEIVE_MAX]
                )


def _entries(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"Id": str(i), "ReceiptHandle": raw["ReceiptHandle"]} for i, raw in enumerate(messages)]


def _letter(raw: dict[str, Any]) -> DeadLetter:
    attributes = raw["Attributes"]
    return DeadLetter(
        message_id=raw["MessageId"],
        body=raw["Body"],
        receives=int(attributes["ApproximateReceiveCount"]),
        sent_ms=int(attributes["SentTimestamp"]),
        died_ms=None,
        group=attributes.get("MessageGroupId"),
    )
