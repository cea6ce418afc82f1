"""Requests for scheduled stashes: `stashes/requests/<digest of the destination>/<id>.json`.

A schedule that starts stashes only if they are requested counts those since its last start. The
stash that starts has their ids in its record, and they are deleted afterwards. So a request is
fulfilled by one stash, even if a process dies in between, and one that is made during the start
counts for the next stash.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.json_codec import JsonCodec, Member
from sleeper.stash.layout import root_name
from sleeper.stash.record import STASHES_FOLDER
from sleeper.stash.record_index import StashRecords
from sleeper.stash.schedules import ScheduleStore
from sleeper.storage.location import DataRoot

NAME_LENGTH_MAX = 100
_FOLDER = f"{STASHES_FOLDER}/requests"
_ENDING = ".json"


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A person or program that wants a stash, and since when."""

    id: str
    by: str
    time_ms: Annotated[int, Member("time")]


_CODEC = JsonCodec(StartRequest)


def request_stash(instance: Instance, destination: str, by: str) -> tuple[StartRequest, bool]:
    """Requests the next scheduled stash of a destination, in somebody's name.

    Returns the request, and whether it is new: a request that is repeated before the stash starts
    is the same. NotFoundError if the destination has no schedule.
    """
    _check_name(by)
    own = instance.storage.root
    schedule = ScheduleStore(own).find(destination)
    for each in pending_requests(own, schedule.digest):
        if each.by == by:
            return each, False
    now_ms = instance.clock()
    made = StartRequest(f"{now_ms}-{token_hex(4)}", by, now_ms)
    content = f"{_CODEC.format(made)}\n".encode()
    own.create(_path(schedule.digest, made.id), content)
    return made, True


def withdraw_request(instance: Instance, destination: str, by: str) -> bool:
    """Withdraws a request. Returns False if there is none, or a stash has started for it."""
    _check_name(by)
    own = instance.storage.root
    schedule = ScheduleStore(own).find(destination)
    ids = [each.id for each in pending_requests(own, schedule.digest) if each.by == by]
    delete_requests(own, schedule.digest, ids)
    return bool(ids)


def pending_requests(own: DataRoot, digest: str) -> tuple[StartRequest, ...]:
    """Returns the requests of a destination for which no stash has started, oldest first."""
    stored = _stored_ids(own, digest)
    requests = (_read(own, digest, each) for each in stored - _fulfilled_ids(own, digest, stored))
    return tuple(sorted(filter(None, requests), key=lambda each: (each.time_ms, each.id)))


def delete_fulfilled(own: DataRoot, digest: str) -> None:
    """Deletes the requests for which a stash has started since the last recorded due time."""
    delete_requests(own, digest, _fulfilled_ids(own, digest, _stored_ids(own, digest)))


def _stored_ids(own: DataRoot, digest: str) -> set[str]:
    names = (each.path.rpartition("/")[2] for each in own.list_objects(f"{_FOLDER}/{digest}"))
    return {name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)}


def _fulfilled_ids(own: DataRoot, digest: str, stored: set[str]) -> set[str]:
    """Returns the ids that a process left when it died after the start of their stash."""
    if not stored:
        return set()
    last_ms = ScheduleStore(own).last_due_ms(digest)
    records = StashRecords(own).at(digest, "" if last_ms is None else root_name(last_ms))
    return stored & {each for record in records for each in record.request.requests}


def delete_requests(own: DataRoot, digest: str, ids: Iterable[str]) -> None:
    """Deletes requests. Idempotent."""
    own.delete([_path(digest, each) for each in ids])


def remove_schedule(instance: Instance, destination: str) -> None:
    """Removes the schedule of a destination, and all requests. NotFoundError if it has none."""
    own = instance.storage.root
    store = ScheduleStore(own)
    digest = store.find(destination).digest
    delete_requests(own, digest, _stored_ids(own, digest))
    store.delete(digest)


def _read(own: DataRoot, digest: str, request_id: str) -> StartRequest | None:
    path = _path(digest, request_id)
    try:
        content = own.read(path).decode(errors="replace")
    except NotFoundError:
        return None  # withdrawn meanwhile
    request: StartRequest = _CODEC.parse(content, own.url_of(path), DataError)
    return request


def _check_name(by: str) -> None:
    if not by.strip() or not by.isprintable() or len(by) > NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"name {by[:NAME_LENGTH_MAX]!r} of a requester is invalid (expected 1 to "
            f"{NAME_LENGTH_MAX} printable characters)"
        )


def _path(digest: str, request_id: str) -> str:
    return f"{_FOLDER}/{digest}/{request_id}{_ENDING}"
