"""Rules of a table's log: dense numbers, times that never go back, submitted changes only."""

from collections import Counter

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.journal import Answer, Journal, Submission
from sleeper.statestore.transactions.compaction_jobs import AssignFiles
from sleeper.statestore.transactions.record_requests import RecordRequests

_DENSE = "numbers are dense"
_TIME = "times never go back"
_ONCE = "a change is committed once"
_SUBMITTED = "only what was submitted is committed"
_LOST = "no acknowledged write is lost"
_HALF = "what was refused is not committed"


def check_log(model: TableModel) -> None:
    """Checks the entries of a log in their order."""
    number, time_ms, write_id = model.first, 0, None
    for entry in model.entries:
        require(
            entry.first_number == number + 1 and entry.last_number >= entry.first_number,
            _DENSE,
            f"entry {entry.first_number} to {entry.last_number} follows {number}",
            table=model.id,
        )
        require(
            entry.time_ms >= time_ms,
            _TIME,
            f"entry {entry.first_number} is of {entry.time_ms}, the one before of {time_ms}",
            table=model.id,
        )
        require(
            write_id is None or entry.previous_write_id in (None, write_id),
            _DENSE,
            f"entry {entry.first_number} follows another write",
            table=model.id,
        )
        number, time_ms, write_id = entry.last_number, entry.time_ms, entry.write_id


def check_submissions(model: TableModel) -> None:
    """Checks that the log has each submission at most once, and nothing that nobody submitted."""
    require(
        not model.strangers,
        _SUBMITTED,
        "rows that nobody submitted",
        table=model.id,
        transactions=model.strangers[:3],
    )
    ids = Counter(
        (each.transaction.kind, each.transaction.id)
        for each in model.log
        if each.transaction.remembered
    )
    check_together(model)
    ids.update(
        (each.transaction.kind, job.job_id)
        for each in model.log
        if isinstance(each.transaction, AssignFiles)
        for job in each.transaction.jobs
    )
    repeated = [each for each, count in ids.items() if count > 1]
    require(not repeated, _ONCE, "ids that were committed twice", table=model.id, ids=repeated)


def check_answers(model: TableModel, journal: Journal) -> None:
    """Checks that the log agrees with what the clients were told."""
    committed = {(each.transaction.kind, each.transaction.id): each.number for each in model.log}
    for each in model.log:
        if isinstance(each.transaction, RecordRequests):
            for request in each.transaction.requests:
                committed["write_request", request.id] = each.number + 1
    for submission in journal.submissions():
        if submission.table_id == model.id:
            numbers = [
                committed[key]
                for kind in submission.kinds
                if (key := (kind, submission.id)) in committed
            ]
            _check_answer(model, submission, numbers)


def _check_answer(model: TableModel, submission: Submission, numbers: list[int]) -> None:
    is_told = submission.answer is Answer.ACKNOWLEDGED and submission.number is not None
    require(
        not is_told or submission.number in numbers,
        _LOST,
        f"{submission.kinds[0]} {submission.id} was acknowledged as {submission.number}",
        table=model.id,
        committed=numbers,
    )
    require(
        submission.answer is not Answer.REFUSED or not numbers,
        _HALF,
        f"{submission.kinds[0]} {submission.id} was refused: {submission.reason}",
        table=model.id,
        committed=numbers,
    )


def check_together(model: TableModel) -> None:
    """Checks that the deletes of a transaction are committed in the entry of its rows."""
    added = {e.transaction.id: e for e in model.log if e.transaction.kind == "add_files"}
    for each in model.log:
        other = added.get(each.transaction.id)
        if each.transaction.kind == "delete_rows" and other is not None:
            is_together = any(before.id == other.transaction.id for before in other.before)
            require(is_together, _ONCE, "a transaction is in two entries", table=model.id, id=each)
