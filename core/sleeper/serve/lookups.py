"""Lookups over HTTP: requests of few keys that wait at the same time are answered by one query.

A request starts a run at once unless two of its table and caller are running. Requests that arrive
meanwhile wait, and the next run answers all of them in one call of a thread.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.lookups import SharedRows, is_lookup, lookup_group, read_together
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.service import make_query_table
from sleeper.schema.model import Schema
from sleeper.serve.access import TableAccess
from sleeper.serve.row_answer import RowFormat
from sleeper.serve.service import QuerySlots, ServerLimits

logger = logging.getLogger(__name__)
# While one run waits for a store, another one can use the processor.
_RUNS_MAX = 2
_LOOKUPS_PER_RUN_MAX = 256
# Of the rows of all responses of a run, in memory. Their text may be several times as large.
_RESPONSES_BYTES_MAX = 16 * 1024**2

Answer = bytes | Exception | None
"""The body of a response, or the error of the request; `None` if the request must run alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """A request for rows of keys. `parse` returns its query, or raises InvalidRequestError."""

    parse: Callable[[Schema], Query]
    form: RowFormat


# A lookup, the future of its answer, and the context of its request, which has its span.
_WaitingLookup = tuple[Lookup, asyncio.Future[Answer], Context]


@dataclass(slots=True)
class _Waiting:
    """The lookups that wait, and the number of runs."""

    running: int = 0
    lookups: list[_WaitingLookup] = field(default_factory=list)


class LookupRuns:
    """Answers lookups together. An object belongs to one event loop."""

    def __init__(self, instance: Instance, limits: ServerLimits, slots: QuerySlots) -> None:
        self._instance = instance
        self._limits = limits
        self._slots = slots
        self._waiting: defaultdict[TableAccess, _Waiting] = defaultdict(_Waiting)
        self._waiting_count = 0
        # The event loop itself keeps only weak references.
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, access: TableAccess, lookup: Lookup) -> bytes | None:
        """Returns the body of the response, `None` if the request must run alone.

        Raises the error of the request, `UnavailableError` if too many lookups wait.
        """
        if self._waiting_count >= self._limits.waiting_max:
            raise UnavailableError(f"{self._waiting_count} lookups wait: try again later")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        waiting = self._waiting[access]
        waiting.lookups.append((lookup, answered, copy_context()))
        self._waiting_count += 1
        if waiting.running < _RUNS_MAX:
            waiting.running += 1
            task = loop.create_task(self._run(access, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer = await answered
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _run(self, access: TableAccess, waiting: _Waiting) -> None:
        try:
            while waiting.lookups:
                await self._answer_next(access, waiting)
        finally:
            waiting.running -= 1
            if not waiting.running:
                self._waiting.pop(access, None)

    async def _answer_next(self, access: TableAccess, waiting: _Waiting) -> None:
        batch: list[_WaitingLookup] = []
        answers: Sequence[Answer]
        try:
            async with self._slots.acquire():
                # Also those that arrived while this run waited for the slot.
                batch = self._take(waiting)
                answers = ()
                if batch:
                    lookups, _, contexts = zip(*batch, strict=True)
                    # The query is traced within the first request.
                    work = partial(contexts[0].run, self._answer, access, lookups)
                    answers = await self._slots.run(work)
        except Exception as error:
            # An error of the batch, or there was no slot for those that wait.
            batch = batch or self._take(waiting)
            answers = [error] * len(batch)
        for (_, answered, _), answer in zip(batch, answers, strict=True):
            if not answered.done():
                answered.set_result(answer)

    def _take(self, waiting: _Waiting) -> list[_WaitingLookup]:
        batch = waiting.lookups[:_LOOKUPS_PER_RUN_MAX]
        del waiting.lookups[:_LOOKUPS_PER_RUN_MAX]
        self._waiting_count -= len(batch)
        return batch

    def _answer(self, access: TableAccess, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        limits = self._limits
        limit = TimeLimit(limits.seconds_max, time.monotonic(), limits.seconds_property)
        try:
            table = make_query_table(self._instance.table(access.table_name), access.caller)
            return answer_lookups(lookups, table, self._instance.queries.engine(), limit)
        except Exception as error:
            # Each caller gets the errors of its own query.
            logger.debug("%s lookups run alone: %s", len(lookups), error)
            return [None] * len(lookups)


def answer_lookups(
    lookups: Sequence[Lookup], table: QueryTable, engine: QueryEngine, limit: TimeLimit
) -> Sequence[Answer]:
    """Returns an answer to each lookup of a table. Raises errors of the table or the store."""
    schema = engine.newest_versions.get(table.name, table.store).plan.schema
    answers: list[Answer] = [None] * len(lookups)
    groups: defaultdict[tuple[Hashable, RowFormat], list[tuple[int, Query]]] = defaultdict(list)
    for index, lookup in enumerate(lookups):
        try:
            query = lookup.parse(schema)
        except InvalidRequestError as error:
            answers[index] = error
            continue
        if is_lookup(query):
            groups[lookup_group(query), lookup.form].append((index, query))
    for (_, form), members in groups.items():
        queries = [query for _, query in members]
        for (index, _), answer in zip(
            members, _answer_group(queries, form, table, engine, limit), strict=True
        ):
            answers[index] = answer
    return answers


def _answer_group(
    queries: Sequence[Query],
    form: RowFormat,
    table: QueryTable,
    engine: QueryEngine,
    limit: TimeLimit,
) -> Sequence[bytes | None]:
    try:
        shared = read_together(queries, table, engine, limit)
    except Exception as error:
        logger.debug("%s lookups run alone: %s", len(queries), error)
        shared = None
    if shared is None:
        return [None] * len(queries)
    spans = [shared.spans_of(query) for query in queries]
    rows = [sum(stop - start for start, stop in each) for each in spans]
    few = _count_few(shared, rows)
    bodies: list[bytes | None] = [*form.encode_shared(shared, spans[:few])]
    bodies += [None] * (len(queries) - few)
    # Alone, a query of too many rows fails with the reason.
    rows_max = engine.settings.rows_max or max(rows)
    return [body if n <= rows_max else None for body, n in zip(bodies, rows, strict=True)]


def _count_few(shared: SharedRows, rows: Sequence[int]) -> int:
    """Returns how many responses may be in memory together. Others are streamed, each alone."""
    row_bytes = shared.rows.nbytes / max(shared.rows.num_rows, 1)
    ends = accumulate(rows)
    return sum(1 for end in ends if end * row_bytes <= _RESPONSES_BYTES_MAX)
