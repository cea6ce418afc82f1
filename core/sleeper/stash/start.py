"""Starts stashes: checks what is asked for, and claims the name of a root."""

import logging
import time
from contextlib import ExitStack
from dataclasses import replace

from sleeper.clock import Clock, iso_time
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.instance import Instance
from sleeper.retries import Backoff, retry
from sleeper.runs.lock import is_locked, lock_root
from sleeper.stash.destination import StashDestination, open_to_write, parse_destination
from sleeper.stash.layout import root_name
from sleeper.stash.record import STASHES_FOLDER, StashRecord, StashRequest
from sleeper.stash.record_index import StashRecords, destination_digest
from sleeper.stash.table_choice import check_exclude, choose_tables
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

# Names are whole seconds, so the next name is at most a second away.
_CLAIMS = 50
_SECONDS_BETWEEN_CLAIMS = 0.05
_LOCK_ATTEMPTS = Backoff(20, seconds_first=0.05, seconds_max=0.2)


def start_stash(
    instance: Instance,
    request: StashRequest,
    name: str | None = None,
    locked: ExitStack | None = None,
) -> StashRecord:
    """Records a stash and returns its record, from which a process or workers make it.

    A scheduled stash has the `name` of its due time, so it starts once. `locked` gets the lock of
    the process that makes the stash, so that no other process takes it for an interrupted one.
    InvalidRequestError for an unusable destination, ConflictError if the name is taken or another
    stash of the destination is being made, and the errors of `choose_tables`.
    """
    request, destination = check_request(instance, request)
    request = replace(request, started_ms=instance.clock())
    own = instance.storage.root
    records = StashRecords(own)
    digest = destination_digest(request.destination)
    starting = f"{STASHES_FOLDER}/{digest}.lock"
    with ExitStack() as start:
        _enter_lock(start, own, starting, "a stash that starts", instance.clock)
        _check_none_runs(records, destination, digest, instance.clock)
        if name is None:
            record = _claim_second(instance, destination, request, locked)
        elif (claimed := _claim(instance, destination, request, name, locked)) is None:
            raise ConflictError(f"{destination.name} already has the stash {name}")
        else:
            record = claimed
    logger.info("started stash", extra={"job_id": record.name})
    return record


def lock_stash(locked: ExitStack, record: StashRecord, clock: Clock) -> None:
    """Enters the lock of the process that makes a stash. ConflictError if another makes it."""
    _enter_lock(locked, record.own, record.lock_path, "a stash", clock)


def _enter_lock(locked: ExitStack, own: DataRoot, path: str, work: str, clock: Clock) -> None:
    # A process that starts, or looks whether this one lives, has the lock for a moment.
    retry(
        lambda: locked.enter_context(lock_root(own, path, work, clock)),
        on=ConflictError,
        backoff=_LOCK_ATTEMPTS,
    )


def check_request(
    instance: Instance, request: StashRequest
) -> tuple[StashRequest, StashDestination]:
    """Returns the request with its names as they are stored, and its destination.

    InvalidRequestError and NotFoundError as `start_stash`.
    """
    check_exclude(instance, request)
    choose_tables(instance, request)
    request = replace(
        request,
        tables=tuple(dict.fromkeys(request.tables)),
        exclude=tuple(dict.fromkeys(request.exclude)),
        # Workers have other working directories.
        destination=parse_destination(request.destination),
    )
    destination = open_to_write(request.destination, instance.storage.root)
    _check_outside(destination, instance)
    return request, destination


def is_dead(record: StashRecord, clock: Clock) -> bool:
    """Returns whether a stash is made by no process and no workers, although it has not ended."""
    return not record.is_submitted() and not is_locked(record.own, record.lock_path, clock)


def _check_none_runs(
    records: StashRecords, destination: StashDestination, digest: str, clock: Clock
) -> None:
    for other in records.running():
        if other.digest != digest:
            continue
        if not is_dead(other, clock):
            raise ConflictError(
                f"stash {other.name} of {destination.name} is being made since "
                f"{iso_time(other.request.started_ms)} (wait for its end, or cancel it with "
                "`sleeper stash cancel`)"
            )
        logger.warning(
            "stash %s of %s was interrupted: `sleeper stash recover` continues it, and "
            "`sleeper stash cancel` deletes its files",
            other.name,
            destination.name,
        )


def is_taken(destination: StashDestination, name: str) -> bool:
    """Returns whether the destination has a root of that name."""
    return name in destination.root.list_folders("")


def _claim_second(
    instance: Instance,
    destination: StashDestination,
    request: StashRequest,
    locked: ExitStack | None,
) -> StashRecord:
    """Claims the name of this second, or of the next."""
    for _ in range(_CLAIMS):
        name = root_name(instance.clock())
        record = _claim(instance, destination, request, name, locked)
        if record is not None:
            return record
        time.sleep(_SECONDS_BETWEEN_CLAIMS)
    raise ConflictError(
        f"{destination.name} already has a stash that started in the same second: {name}"
    )


def _claim(
    instance: Instance,
    destination: StashDestination,
    request: StashRequest,
    name: str,
    locked: ExitStack | None,
) -> StashRecord | None:
    """Claims a name, after its lock if one is wanted. Returns None if it is taken."""
    if is_taken(destination, name):
        return None
    records = StashRecords(instance.storage.root)
    with ExitStack() as attempt:
        if locked is not None:
            lock_stash(attempt, records.locate(request.destination, name), instance.clock)
        record = records.create(name, request)
        if record is not None and locked is not None:
            locked.push(attempt.pop_all())
    return record


def _check_outside(destination: StashDestination, instance: Instance) -> None:
    own, root = instance.storage.root, destination.root
    if own.url_of("") == root.url_of("") or root.url_of("").startswith(
        own.url_of("").rstrip("/") + "/"
    ):
        raise InvalidRequestError(f"{destination.name} is inside the instance {own.url_of('')}")
