"""A store of obstore whose requests go to a simulated bucket, and its retries.

The store repeats requests as the native one does: after an error response or a failed connection
always, after a lost response only if the request is *idempotent*. A conditional put is not, so its
caller gets the error; but S3 may also answer with an error a put that it has carried out, and then
the repetition fails because of the first. S3 may refuse a conditional put, though its condition
holds, while another write of the object is in flight.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import S3Store

from simulation.calls import Call, Calls, Fault
from simulation.services.requests import LastingFault, Sleep
from simulation.services.s3.buckets import MissingBucketError, ObjectService, StoredBucket

if TYPE_CHECKING:
    from obstore.store import RetryConfig

T = TypeVar("T")

_ANSWERS = {
    Fault.UNAVAILABLE: ("503 Service Unavailable", "ServiceUnavailable"),
    Fault.THROTTLED: ("503 Service Unavailable", "SlowDown"),
    Fault.FULL: ("503 Service Unavailable", "ServiceUnavailable"),
    Fault.LOST: ("500 Internal Server Error", "InternalError"),
}
_LOST_IN_RESPONSE = 0.5


def conflict_error(key: str, condition: str) -> Exception:
    """Returns the error of a conditional put that S3 answers with 409.

    The store repeats an update, but says of a creation that the object exists.
    """
    text = f"Object at location {key}: Server returned non-2xx status code: 409 Conflict"
    return RequestFailedError(text, True) if condition else AlreadyExistsError(text)


class RequestFailedError(Exception):
    """One attempt of a request failed. `is_repeated` is whether the store tries again."""

    def __init__(self, text: str, is_repeated: bool) -> None:
        super().__init__(text)
        self.is_repeated = is_repeated


class SimulatedStore(S3Store):
    """A bucket of a simulated S3, or its objects below a prefix."""

    service: ObjectService
    calls: Calls
    sleep: Sleep
    bucket_name: str
    key_prefix: str
    retries: "RetryConfig"

    @property
    def bucket(self) -> StoredBucket:
        """The bucket. FileNotFoundError if it does not exist."""
        try:
            return self.service.bucket(self.bucket_name)
        except MissingBucketError as error:
            raise FileNotFoundError(
                f"Object at location {self.bucket_name} not found: Server returned non-2xx status "
                "code: 404 Not Found: <Error><Code>NoSuchBucket</Code><Message>The specified "
                "bucket does not exist</Message></Error>"
            ) from error

    def key_of(self, path: str) -> str:
        """Returns the key of a path."""
        return self.key_prefix + path.strip("/")

    def path_of(self, key: str) -> str:
        """Returns the path of a key."""
        return key[len(self.key_prefix) :]

    def send(self, operation: str, key: str, effect: Callable[[], T], idempotent: bool = True) -> T:
        """Returns the effect's result. GenericError if the store gives up."""
        call = Call("s3", operation, f"{self.bucket_name}/{key}")
        lasting = LastingFault(self.calls)

        def fail(fault: Fault) -> Exception:
            return lasting.begin(self._error(fault, idempotent))

        retries = self.retries["max_retries"]
        for retry, wait_seconds in enumerate([*self._waits_seconds(retries), 0.0]):
            try:
                lasting.check()
                return self.calls(call, effect, fail)
            except RequestFailedError as error:
                if retry == retries or not error.is_repeated:
                    raise GenericError(
                        f"Generic S3 error: Error performing {operation} {call.target} after "
                        f"{retry} retries, max_retries: {retries} - {error}"
                    ) from error
            self.sleep(wait_seconds)
        raise AssertionError("unreachable")

    def _waits_seconds(self, retries: int) -> Iterator[float]:
        """Yields the means of the random waits."""
        backoff = self.retries["backoff"]
        first = wait = backoff["init_backoff"].total_seconds()
        for _ in range(retries):
            yield wait
            longest = backoff["max_backoff"].total_seconds()
            wait = min(longest, (first + backoff["base"] * wait) / 2)

    def _error(self, fault: Fault, idempotent: bool) -> Exception:
        if fault is Fault.LOST and not self.calls.choose(_LOST_IN_RESPONSE):
            return RequestFailedError("HTTP error: operation timed out", idempotent)
        status, code = _ANSWERS[fault]
        body = f"<Error><Code>{code}</Code><Message>simulated</Message></Error>"
        return RequestFailedError(f"Server returned non-2xx status code: {status}: {body}", True)


def open_store(
    service: ObjectService, calls: Calls, sleep: Sleep, name: str, **settings: Any
) -> SimulatedStore:
    """Returns the store of a bucket with the settings of obstore's own."""
    store = SimulatedStore(name, **settings)
    store.service, store.calls, store.sleep = service, calls, sleep
    store.bucket_name = name
    prefix = (settings.get("prefix") or "").strip("/")
    store.key_prefix = f"{prefix}/" if prefix else ""
    store.retries = settings["retry_config"]
    return store
