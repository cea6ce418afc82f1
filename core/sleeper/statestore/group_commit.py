"""Commits of many callers as one entry of the log.

One thread commits the waiting transactions of all threads of its process, and one process those of
other processes of the machine.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from sleeper.clock import Clock
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.statestore.commit_queue import Answer, CommitQueue, Returned, Submission
from sleeper.statestore.database import Database
from sleeper.statestore.entry_commit import CommitRequest, EntryCommitter, fail_rest
from sleeper.statestore.log import TransactionLog
from sleeper.statestore.transactions.codec import EncodedTransaction, decode_line
from sleeper.statestore.transactions.transaction import Outcome, Status
from sleeper.statestore.write_lock import LOCK_SECONDS_MAX, locked_too_long

_TRANSACTIONS_PER_ENTRY_MAX = 1_000
# A leader that commits for other processes keeps its own callers waiting.
_LEADING_SECONDS_MAX = 0.05
# Senders whose transactions were just committed soon send the next ones.
_NEXT_SUBMISSION_MS = 1
# A sender looks so often whether the lock is free, and sends its submission again after so long.
_ANSWER_SECONDS = 0.02
_SUBMISSION_SECONDS = 0.5
# After so many submissions without an answer, it waits for the lock: leaders of another user or
# with another folder of temporary files, do not read its pipe, and rarely leave the lock free.
_SUBMISSIONS_MAX = 2


class GroupCommitter:
    """Commits to the log and state of one table. Thread-safe.

    Processes queue at the database; with a `queue`, the first commits for those that wait.
    """

    def __init__(
        self,
        database: Database,
        log: TransactionLog,
        clock: Clock,
        queue: CommitQueue | None = None,
    ) -> None:
        entries = EntryCommitter(database, log, clock)
        self._committer = entries if queue is None else _LeaderOrSender(database, entries, queue)
        self._waiting: deque[CommitRequest] = deque()
        self._leading = threading.Lock()

    def commit(
        self, transactions: Sequence[EncodedTransaction], together: bool = False
    ) -> list[Outcome]:
        """Returns one outcome per transaction. ConflictError after too many conflicts.

        `together` applies all or none, see `apply_together`. After UnavailableError the outcome is
        unknown: commit the same transactions again.
        NotFoundError if the log was trimmed beyond this copy of the state.
        """
        request = CommitRequest(transactions, together)
        self._waiting.append(request)
        with self._leading:
            while not request.done:
                self._lead()
        if request.error is not None:
            raise request.error
        return request.outcomes

    def start(self, request: CommitRequest, unfinished: ExitStack) -> Callable[[], None] | None:
        """Starts a commit, which no other thread or process shares; see `EntryCommitter.start`.

        None also if another thread commits. Others wait until `unfinished` is closed.
        """
        if not isinstance(self._committer, EntryCommitter):
            return None
        if not self._leading.acquire(blocking=False):
            return None
        unfinished.callback(self._leading.release)
        return self._committer.start(request, unfinished)

    def close(self) -> None:
        """Closes the queue of the processes. A later use opens it again."""
        with self._leading:
            if isinstance(self._committer, _LeaderOrSender):
                self._committer.close()

    def _lead(self) -> None:
        group: list[CommitRequest] = []
        try:
            count = 0
            while self._waiting and count < _TRANSACTIONS_PER_ENTRY_MAX:
                group.append(self._waiting.popleft())
                count += len(group[-1].transactions)
            self._committer.commit(group)
        except UnavailableError as error:
            fail_rest(group, error)
        finally:
            # An interrupt of this thread must not block the others.
            interrupted = UnavailableError("the thread that was committing was interrupted")
            fail_rest(group, interrupted)


class _LeaderOrSender:
    """Commits as the leader of the processes, or sends requests to the leader."""

    def __init__(self, database: Database, entries: EntryCommitter, queue: CommitQueue) -> None:
        self._database = database
        self._entries = entries
        self._queue = queue

    def close(self) -> None:
        self._queue.close()

    def commit(self, group: Sequence[CommitRequest]) -> None:
        """Sets the outcomes or the error of each request."""
        requests = [(each.together, [t.line for t in each.transactions]) for each in group]
        # A repeated submission has the same id, so that an answer to the first one counts too.
        submission_id = uuid.uuid4().hex
        is_sent = is_repeated = False
        unanswered = 0
        start = sent = time.monotonic()
        while (now := time.monotonic()) < start + LOCK_SECONDS_MAX:
            if self._lead_if_free(group, submission_id):
                return
            if not is_sent or now > sent + _SUBMISSION_SECONDS:
                is_repeated = sent > start
                if unanswered == _SUBMISSIONS_MAX or not self._queue.send(submission_id, requests):
                    break
                is_sent, sent = True, now
                unanswered += 1
                # The leader may have stopped before the submission was in the pipe.
                continue
            answer = self._queue.receive(submission_id, _ANSWER_SECONDS)
            if answer is Returned.ALONE or (is_repeated and _is_refused(answer)):
                # A copy of a refused request could be applied later. Under the lock, the copies
                # are dropped, and the outcome is final.
                break
            if answer is Returned.AGAIN:
                is_sent, unanswered = False, 0
            elif answer is not None:
                _settle(group, answer)
                return
        else:
            raise locked_too_long(self._database.path)
        with self._database.locked():
            self._lead_unless_answered(group, submission_id)
        self._return_submissions()

    def _lead_if_free(self, group: Sequence[CommitRequest], submission_id: str) -> bool:
        with self._database.try_locking() as is_leader:
            if not is_leader:
                return False
            self._lead_unless_answered(group, submission_id)
        self._return_submissions()
        return True

    def _lead_unless_answered(self, group: Sequence[CommitRequest], submission_id: str) -> None:
        """Leads. The last leader may have answered before it released the lock."""
        answer = self._queue.receive(submission_id, 0)
        if isinstance(answer, list) and not _is_refused(answer):
            _settle(group, answer)
            group = ()
        self._lead(group)

    def _return_submissions(self) -> None:
        """Returns submissions that arrived while this process stopped to lead."""
        for submission in self._queue.take():
            self._queue.answer(submission, Returned.AGAIN)

    def _lead(self, group: Sequence[CommitRequest]) -> None:
        """Commits submissions with the group after them, and then those that follow."""
        end = time.monotonic() + _LEADING_SECONDS_MAX
        submissions = self._queue.take()
        self._commit_submissions(submissions, group)
        while time.monotonic() < end:
            if submissions:
                self._queue.wait(_NEXT_SUBMISSION_MS)
            submissions = self._queue.take()
            if not submissions:
                break
            self._commit_submissions(submissions, ())

    def _commit_submissions(
        self, submissions: Sequence[Submission], group: Sequence[CommitRequest]
    ) -> None:
        decoded: list[tuple[Submission, list[CommitRequest]]] = []
        for submission in submissions:
            try:
                decoded.append((submission, _decode_submission(submission)))
            except (DataError, InvalidRequestError):  # another version wrote it
                self._queue.answer(submission, Returned.ALONE)
        try:
            requests = [request for _, each in decoded for request in each]
            self._entries.commit([*requests, *group])
        finally:
            for submission, sent in decoded:
                if all(request.done and request.error is None for request in sent):
                    self._queue.answer(submission, [request.outcomes for request in sent])
                else:
                    self._queue.answer(submission, Returned.ALONE)


def _settle(group: Sequence[CommitRequest], answer: Sequence[list[Outcome]]) -> None:
    for request, outcomes in zip(group, answer, strict=True):
        request.settle(outcomes)


def _is_refused(answer: Answer | None) -> bool:
    return isinstance(answer, list) and any(
        outcome.status is Status.REFUSED for outcomes in answer for outcome in outcomes
    )


def _decode_submission(submission: Submission) -> list[CommitRequest]:
    return [
        CommitRequest([decode_line(line) for line in lines], together)
        for together, lines in submission.requests
    ]
