"""Users' compaction strategies: valid and invalid answers, and those that end or never do."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.compaction.plan import CreationReport, create_compaction_jobs
from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.local.folder import CodeFolder
from sleeper.statestore.transactions.compaction_jobs import AssignFiles
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode
from sleeper.user_code.registry import Registry
from sleeper.user_code.wheel import CodeKind
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.conftest import MakeTable
from tests.wheels import isolated_user_code, make_wheel

_FORKED_SECONDS = 20
_CODE = """
import os
import time
from sleeper.compaction.strategy import FileSize

print("at import")
leaves = []

def pairs(files, settings):
    assert (len(files), settings.files_per_job_max) == (4, 12)
    print("in a call")
    return [(files[0], files[3]), (files[1], files[2])]

def failing(act):
    def strategy(files, settings):
        leaves.append(files)
        return [list(files)] if len(leaves) == 1 else act(files)
    return strategy

def fail(error):
    raise error

def never(files):
    while True:
        pass

def fork_and(act):
    def forking(files):
        if os.fork() == 0:
            time.sleep(FORKED_SECONDS)
            os._exit(0)
        return act(files)
    return forking

def close_output(files):
    os.closerange(3, 100)
    never(files)

raises = failing(lambda files: fail(RuntimeError("no idea")))
interrupts = failing(lambda files: fail(KeyboardInterrupt()))
exits = failing(lambda files: fail(SystemExit(3)))
ends = failing(lambda files: os._exit(7))
returns_none = failing(lambda files: None)
returns_unknown = failing(lambda files: [[files[0], FileSize("elsewhere.parquet", 1)]])
returns_overlap = failing(lambda files: [files[:2], files[1:3]])
returns_duplicate = failing(lambda files: [[files[0], files[0]]])
returns_one_file = failing(lambda files: [[files[0]]])
returns_text = failing(lambda files: ["ab"])
loops = failing(never)
forks_and_loops = failing(fork_and(never))
forks_and_ends = failing(fork_and(lambda files: os._exit(7)))
closes_output = failing(close_output)
missing = None
"""
_NAMES = [
    *("pairs", "raises", "interrupts", "exits", "ends", "loops", "missing", "returns_none"),
    *("returns_unknown", "returns_overlap", "returns_duplicate", "returns_one_file"),
    *("returns_text", "forks_and_loops", "forks_and_ends", "closes_output"),
]


@pytest.fixture
def code(tmp_path: Path) -> Iterator[UserCode]:
    names = {name: f"my_code:{name}" for name in _NAMES}
    modules = {
        "my_code": f"FORKED_SECONDS = {_FORKED_SECONDS}\n{_CODE}",
        "my_code_import": "while True: pass",
    }
    names["import_loops"] = "my_code_import:any"
    registry = Registry(CodeFolder(tmp_path / "code"))
    registry.add([make_wheel(tmp_path, modules=modules, strategies=names)])
    with isolated_user_code():
        yield UserCode(registry, tmp_path / "unpacked")


def create(table: DataTable, code: UserCode, name: str, **properties: str) -> CreationReport:
    table.set(sleeper__table__compaction__strategy__class=name, **properties)
    return create_compaction_jobs(
        TABLE_ID,
        table.store,
        table.properties,
        table.tracker,
        table.send,
        table.clock,
        code=code,
    )


@pytest.fixture
def table(make_table: MakeTable) -> DataTable:
    """Two leaves of four files each."""
    data_table = make_table(split_points=[10])
    for _ in range(4):
        data_table.ingest(range(20))
    return data_table


def test_groups_become_jobs_and_no_code_runs_in_this_process(
    table: DataTable, code: UserCode
) -> None:
    assert create(table, code, "pairs").created == 4
    assert all(len(job.inputs) == 2 for job in table.sent_jobs())
    assert "my_code" not in sys.modules


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "RuntimeError: no idea"),
        ("interrupts", "KeyboardInterrupt: "),
        ("exits", "SystemExit: 3"),
        ("ends", "its process ended with status 7"),
        ("returns_none", "TypeError: 'NoneType' object is not iterable"),
        ("returns_unknown", "file elsewhere.parquet is not a candidate, or is in two groups"),
        ("returns_overlap", "file .* is not a candidate, or is in two groups"),
        ("returns_duplicate", "file .* is not a candidate, or is in two groups"),
        ("returns_one_file", "group of 1 files"),
        ("returns_text", "AttributeError: 'str' object has no attribute 'path'"),
        ("missing", "compaction strategy 'missing' .*: the module has no such attribute"),
    ],
)
def test_an_invalid_answer_for_one_leaf_assigns_nothing(
    table: DataTable, code: UserCode, name: str, reason: str
) -> None:
    with pytest.raises(
        UserCodeError, match=f"^compaction strategy '{name}' on partition .*: {reason}"
    ):
        create(table, code, name)
    assert (table.assigned(), table.messages) == ([], [])
    assert not any(isinstance(t, AssignFiles) for t in table.watched.committed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loops", "import_loops", "forks_and_loops", "forks_and_ends"])
def test_a_strategy_that_never_ends_is_killed(table: DataTable, code: UserCode, name: str) -> None:
    limit = {"sleeper__table__compaction__strategy__timeout__seconds": "1"}
    start = time.monotonic()
    with pytest.raises(
        UserCodeError, match=rf"'{name}' .*: no answer within 1 seconds \(sleeper.table.compaction"
    ):
        create(table, code, name, **limit)
    assert time.monotonic() - start < _FORKED_SECONDS
    assert table.assigned() == []
    assert create(table, code, "pairs").created == 4


def test_a_strategy_that_closes_its_output_is_killed(table: DataTable, code: UserCode) -> None:
    with pytest.raises(UserCodeError, match="its process ended with status -9"):
        create(table, code, "closes_output")


def test_an_unregistered_strategy_assigns_nothing(table: DataTable, code: UserCode) -> None:
    with pytest.raises(InvalidRequestError, match="no compaction strategy 'mine' is registered"):
        create(table, code, "mine")
    assert BUILT_IN_CODE.load(CodeKind.STRATEGY, "BasicCompactionStrategy")
    assert table.assigned() == []
