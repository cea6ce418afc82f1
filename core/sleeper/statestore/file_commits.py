"""Commits of a job's new files, once per job id.

Ingests, bulk imports and other writers share the ids. An id that was used for other input is
rejected.
"""

import logging

from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.statestore.commit_message import commit_until_known
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.codec import hash_request
from sleeper.statestore.transactions.transaction import Outcome, Status

logger = logging.getLogger(__name__)


def find_earlier_commit(state: StateStore, job_id: str, request: str) -> Outcome | None:
    """Returns the outcome of an earlier commit of the job; None if there is none.

    InvalidRequestError if the id was used for another request.
    """
    with state.reading() as now:
        applied = now.jobs.applied(job_id, AddFiles.kind)
    if applied is None:
        return None
    if applied.fingerprint != hash_request(request):
        raise InvalidRequestError(
            f"ingest job id {job_id} was used by transaction {applied.number} for other files"
        )
    logger.info("job is committed already", extra={"job_id": job_id})
    return Outcome(Status.ALREADY_DONE, applied.number)


def commit_files(state: StateStore, files: AddFiles) -> Outcome:
    """Commits the files. The outcome shows whether another run of the job committed first.

    Retries unavailable stores. After UnavailableError the outcome is unknown: retry the job under
    its id. StateMovedOnError if the commit is refused, InvalidRequestError if the id was used
    meanwhile for another request.
    """
    (outcome,) = commit_until_known(lambda: state.commit(files))
    return check_file_outcome(state, files, outcome)


def check_file_outcome(state: StateStore, files: AddFiles, outcome: Outcome) -> Outcome:
    """Returns the outcome. Raises the errors of `commit_files` if it is a refusal."""
    if outcome.refused:
        if files.request is not None:
            find_earlier_commit(state, files.id, files.request)
        raise StateMovedOnError(f"ingest job {files.id} came too late: {outcome.reason}")
    return outcome
