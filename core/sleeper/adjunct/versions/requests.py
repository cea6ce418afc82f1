"""Requests to the process that fills a store, as files in the store's folder.

A request is the file `request-<id>`, whose content is the action. The process that fills the store
deletes it when the action is done, and replaces it by `refused-<id>` with the reason if it cannot
be done. If no process fills the store, the next one that does handles the request.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sleeper.adjunct.versions.folder import REQUEST_FILE, StoreFolder
from sleeper.errors import (
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    describe_error,
)

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_REFUSED_SECONDS = 600


class Action(StrEnum):
    """A request: to load the store again, or to end the dataset that is being built."""

    REBUILD = "rebuild"
    SEAL = "seal"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is not done."""

    id: str
    action: Action


def send_request(folder: StoreFolder, action: Action) -> Request:
    """Asks the process that fills the store. UnavailableError if the disk is full."""
    request = Request(secrets.token_hex(8), action)
    try:
        _write(folder, f"request-{request.id}", action.value)
    except OSError as error:
        raise UnavailableError(
            f"store at {folder.path}: cannot write a request: {describe_error(error)}"
        ) from error
    return request


def read_requests(folder: StoreFolder) -> Sequence[Request]:
    """Returns the requests that are not done, in any order. Deletes those of unknown actions."""
    requests = []
    try:
        paths = sorted(folder.path.glob("request-*"))
    except OSError:
        return ()
    for path in paths:
        match = REQUEST_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            requests.append(Request(match[2], Action(path.read_text())))
        except FileNotFoundError:
            continue
        except ValueError:
            logger.warning("store %s: deleted request %s of an unknown action", folder.name, path)
            path.unlink(missing_ok=True)
    return requests


def finish_request(folder: StoreFolder, request: Request) -> None:
    """Records that the action is done. Idempotent."""
    (folder.path / f"request-{request.id}").unlink(missing_ok=True)


def refuse_request(folder: StoreFolder, request: Request, reason: str) -> None:
    """Records why the action cannot be done. If the disk is full, it is asked for again."""
    for former in folder.path.glob("refused-*"):
        with contextlib.suppress(FileNotFoundError):
            # The process that asked has ended without reading it.
            if time.time() - former.stat().st_mtime > _REFUSED_SECONDS:
                former.unlink()
    try:
        _write(folder, f"refused-{request.id}", reason)
    except OSError as error:
        logger.warning("store %s: cannot refuse a request: %s", folder.name, describe_error(error))
        return
    finish_request(folder, request)


def wait_until_done(folder: StoreFolder, request: Request, seconds: float | None = None) -> bool:
    """Returns whether the action was done within the time, None for no limit.

    InvalidRequestError if it was refused, and UnavailableError if the process that fills the store
    has ended before: the next one does it.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    pending, refused = (folder.path / f"{each}-{request.id}" for each in ("request", "refused"))
    while True:
        is_filled = folder.is_locked()
        if not pending.exists():
            break
        if not is_filled:
            raise UnavailableError(
                f"store at {folder.path}: the process that fills it has ended (the next one does "
                f"the {request.action.value})"
            )
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    if refused.exists():
        reason = refused.read_text()
        refused.unlink(missing_ok=True)
        raise InvalidRequestError(reason)
    if not folder.path.is_dir():
        raise NotFoundError(f"store at {folder.path} was deleted")
    return True


def _write(folder: StoreFolder, name: str, content: str) -> None:
    new = folder.path / f"{name}.new"
    new.write_text(content)
    new.replace(folder.path / name)
