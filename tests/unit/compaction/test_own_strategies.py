"""Users' compaction strategies: valid and invalid answers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sleeper.compaction.plan import CreationReport, create_compaction_jobs
from sleeper.compaction.strategy import FileSize, StrategySettings
from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.statestore.transactions.compaction_jobs import AssignFiles
from sleeper.user_code.loading import BUILT_IN_CODE
from sleeper.user_code.wheel import CodeKind
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.conftest import MakeTable

Files = Sequence[FileSize]


class OneStrategy:
    """A fake of `UserCode` with one strategy."""

    def __init__(self, strategy: Callable[..., Any]) -> None:
        self._strategy = strategy

    def load(self, kind: CodeKind, name: str) -> Any:
        assert (kind, name) == (CodeKind.STRATEGY, "mine")
        return self._strategy


def create(table: DataTable, strategy: Callable[..., Any]) -> CreationReport:
    table.set(sleeper__table__compaction__strategy__class="mine")
    return create_compaction_jobs(
        TABLE_ID,
        table.store,
        table.properties,
        table.tracker,
        table.send,
        table.clock,
        code=OneStrategy(strategy),  # type: ignore[arg-type]
    )


@pytest.fixture
def table(make_table: MakeTable) -> DataTable:
    """Two leaves of four files each."""
    data_table = make_table(split_points=[10])
    for _ in range(4):
        data_table.ingest(range(20))
    return data_table


def test_groups_become_jobs(table: DataTable) -> None:
    seen: list[tuple[int, int]] = []

    def pairs(files: Files, settings: StrategySettings) -> list[tuple[FileSize, ...]]:
        seen.append((len(files), settings.files_per_job_max))
        return [(files[0], files[3]), (files[1], files[2])]

    assert create(table, pairs).created == 4
    assert seen == [(4, 12), (4, 12)]
    assert all(len(job.inputs) == 2 for job in table.sent_jobs())


def raises(files: Files, settings: StrategySettings) -> Any:
    raise RuntimeError("no idea")


def returns_none(files: Files, settings: StrategySettings) -> Any:
    return None


def returns_unknown(files: Files, settings: StrategySettings) -> Any:
    return [[files[0], FileSize("elsewhere.parquet", 1)]]


def returns_overlap(files: Files, settings: StrategySettings) -> Any:
    return [files[:2], files[1:3]]


def returns_duplicate(files: Files, settings: StrategySettings) -> Any:
    return [[files[0], files[0]]]


def returns_one_file(files: Files, settings: StrategySettings) -> Any:
    return [[files[0]]]


def returns_text(files: Files, settings: StrategySettings) -> Any:
    return ["ab"]


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (raises, "RuntimeError: no idea"),
        (returns_none, "TypeError: 'NoneType' object is not iterable"),
        (
            returns_unknown,
            "file elsewhere.parquet is not a candidate, or is in two groups",
        ),
        (returns_overlap, "file .* is not a candidate, or is in two groups"),
        (returns_duplicate, "file .* is not a candidate, or is in two groups"),
        (returns_one_file, "group of 1 files"),
        (returns_text, "AttributeError: 'str' object has no attribute 'path'"),
    ],
)
def test_invalid_answer_for_one_leaf_assigns_nothing(
    table: DataTable, strategy: Any, reason: str
) -> None:
    calls: list[int] = []

    def valid_at_first(files: Files, settings: StrategySettings) -> Any:
        calls.append(len(files))
        return [list(files)] if len(calls) == 1 else strategy(files, settings)

    with pytest.raises(
        UserCodeError, match=f"compaction strategy 'mine' on partition .*: {reason}"
    ):
        create(table, valid_at_first)
    assert len(calls) == 2
    assert (table.assigned(), table.messages) == ([], [])
    assert not any(isinstance(t, AssignFiles) for t in table.watched.committed)


def test_unregistered_strategy_assigns_nothing(table: DataTable) -> None:
    table.set(sleeper__table__compaction__strategy__class="mine")
    with pytest.raises(InvalidRequestError, match="no compaction strategy 'mine' is registered"):
        table.create_jobs()
    assert BUILT_IN_CODE.load(CodeKind.STRATEGY, "BasicCompactionStrategy")
    assert table.assigned() == []
