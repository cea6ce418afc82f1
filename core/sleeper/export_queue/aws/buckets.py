"""The state of buckets in the DynamoDB table of export queues: counts, failures and claims."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.errors import StateMovedOnError
from sleeper.export_queue.aws.changes import BucketChange
from sleeper.export_queue.aws.keys import BUCKET, DEAD, QueueKeys, bucket_number
from sleeper.export_queue.store import BucketStatus

ERROR_CHARACTERS_MAX = 5_000
_OWNED = "#owner = :owner"
_EMPTY = "(attribute_not_exists(#items) OR #items = :none)"
_NOTHING_DEAD = "(attribute_not_exists(#dead) OR #dead = :none)"
_OLDEST_TRIES = 10


@dataclass(frozen=True, slots=True)
class Buckets:
    """The states of the buckets of one queue that have items, dead letters or a claim."""

    items: DynamoItems
    keys: QueueKeys

    def states(self) -> Iterator[Item]:
        """Yields the states, by number."""
        return self._listed(BUCKET)

    def dead_rows(self, page_size: int | None = None) -> Iterator[Item]:
        """Yields the dead letters, by id."""
        return self._listed(DEAD, page_size)

    def rows(self, bucket: int, page_size: int | None = None) -> Iterator[Item]:
        """Yields the items of a bucket."""
        values = {"queue": self.keys.items(bucket)}
        return self.items.query("#queue = :queue", values, page_size=page_size)

    def claim(self, bucket: int, owner: str, until_ms: int, now_ms: int) -> bool:
        """See the port."""
        change = "SET #owner = :owner, #until = :until"
        values = {"owner": owner, "until": until_ms}
        with suppress(RefusedError):
            self._change(bucket, change, f"attribute_not_exists(#owner) OR {_OWNED}", values)
            return True
        values |= {"now": now_ms, "one": 1}
        with suppress(RefusedError):
            self._change(bucket, f"{change} ADD #deaths :one", "#until <= :now", values)
            return True
        return False

    def release(self, bucket: int, owner: str) -> None:
        """See the port. Deletes the state of a bucket without items and dead letters."""
        condition = f"{_OWNED} AND {_EMPTY} AND {_NOTHING_DEAD}"
        values = {"owner": owner, "none": 0}
        delete = self.items.delete_write(self.keys.bucket(bucket), condition, values)
        try:
            self.items.retry_conflicts(partial(self.items.transact, [delete]))
        except RefusedError:
            with suppress(RefusedError):
                self._change(bucket, "REMOVE #owner, #until", _OWNED, {"owner": owner})

    def adding(self, bucket: int, now_ms: int) -> BucketChange:
        """Returns the change of a bucket that gets items."""
        change = "SET #oldest = if_not_exists(#oldest, :now)"
        return BucketChange(self.keys.bucket(bucket), change, None, {"now": now_ms})

    def settling(self, bucket: int, owner: str) -> BucketChange:
        """Returns the change of a bucket whose items were exported."""
        change = "REMOVE #failures, #refusals, #deaths, #refused, #error, #due"
        return BucketChange(self.keys.bucket(bucket), change, _OWNED, {"owner": owner})

    def set_oldest(self, bucket: int) -> None:
        """Sets the time of a bucket's first item. Repeats if a writer adds one at the same time."""
        for _ in range(_OLDEST_TRIES):
            first = next(self.rows(bucket, page_size=1), None)
            with suppress(RefusedError):
                if first is None:
                    self._change(bucket, "REMOVE #oldest", _EMPTY, {"none": 0})
                else:
                    values = {"at": first["at"], "none": 0}
                    self._change(bucket, "SET #oldest = :at", "#items > :none", values)
                return

    def fail(self, bucket: int, owner: str, error: str, is_refusal: bool, due_ms: int) -> None:
        """Counts a failure and ends the claim. StateMovedOnError if it has ended."""
        change = (
            "SET #error = :error, #due = :due, #refused = :refused REMOVE #owner, #until"
            " ADD #failures :failure, #refusals :refusal"
        )
        values = {
            "owner": owner,
            "error": error[:ERROR_CHARACTERS_MAX],
            "due": due_ms,
            "failure": 1,
            "refusal": int(is_refusal),
            "refused": is_refusal,
        }
        try:
            self._change(bucket, change, _OWNED, values)
        except RefusedError as refused:
            raise ended_claim(self.keys.name, bucket) from refused

    def make_due(self) -> int:
        """Makes buckets due that wait after a failure. Returns their number."""
        waiting = [state for state in self.states() if "due" in state]
        for state in waiting:
            with suppress(RefusedError):
                due = {"due": state["due"]}
                self._change(bucket_number(state), "REMOVE #due", "#due = :due", due)
        return len(waiting)

    def _listed(self, prefix: str, page_size: int | None = None) -> Iterator[Item]:
        return self.items.query(
            "#queue = :queue AND begins_with(#item, :prefix)",
            {"queue": self.keys.partition, "prefix": prefix},
            page_size=page_size,
        )

    def _change(
        self, bucket: int, change: str, condition: str, values: Mapping[str, object]
    ) -> None:
        update = partial(
            self.items.update, self.keys.bucket(bucket), change, condition, dict(values)
        )
        self.items.retry_conflicts(update)


def describe_bucket(state: Item, now_ms: int) -> BucketStatus:
    """Returns the status of a bucket by its state."""
    until_ms = state.get("until", 0)
    return BucketStatus(
        bucket=bucket_number(state),
        items=state["items"],
        exports=state["exports"],
        bytes=state["bytes"],
        oldest_ms=state.get("oldest", now_ms),
        failures=state.get("failures", 0),
        refusals=state.get("refusals", 0),
        error=state.get("error", ""),
        due_ms=state.get("due", 0),
        claimed_until_ms=until_ms if until_ms > now_ms else 0,
        deaths=state.get("deaths", 0),
        was_refused=state.get("refused", False),
    )


def ended_claim(name: str, bucket: int) -> StateMovedOnError:
    """Returns the error of a change by a worker whose claim has ended."""
    return StateMovedOnError(f"export queue {name!r}: the claim on bucket {bucket} has ended")
