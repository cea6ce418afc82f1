"""Mutations of one line of the product break a rule in a random history.

Each is planted in histories of a few seeds. One that survives shows that a check is missing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from simulation.checks.violation import Violation
from sleeper.datafiles.merge import processing
from sleeper.errors import DataError
from sleeper.garbage_collection import collection
from sleeper.statestore import rows
from sleeper.statestore.fold import Fold
from sleeper.statestore.transactions import restore, snapshot_loads
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.collection import CollectFiles
from tests.simulation.model.driver import Driver

Plant = Callable[[], AbstractContextManager[Any]]
_SEEDS_MAX = 12
_STEPS = 120


def _forget_deletes() -> AbstractContextManager[Any]:
    return patch("sleeper.query.plan.find_deleted", lambda _file, _deletes: ())


def _keep_later_deletes() -> AbstractContextManager[Any]:
    return patch.object(restore, "_END_DELETES", "SELECT 1")


def _add_loads() -> AbstractContextManager[Any]:
    return patch.object(snapshot_loads, "remove_references", lambda _fold: None)


def _pin_nothing() -> AbstractContextManager[Any]:
    return patch("sleeper.admin.clone._pin", lambda *_: None)


def _age_off_later() -> AbstractContextManager[Any]:
    original = processing._age_predicate

    def later(field: Any, age_off: Any, now_ms: int) -> Any:
        return original(field, replace(age_off, age_ms=age_off.age_ms + 1), now_ms)

    return patch.object(processing, "_age_predicate", later)


def _forget_job_ids() -> AbstractContextManager[Any]:
    return patch.object(AddFiles, "remembered", False)


def _leave_an_input() -> AbstractContextManager[Any]:
    def remove(fold: Fold, partition: int, file: int) -> None:
        if file % 3:
            rows.remove_reference(fold, partition, file)

    return patch("sleeper.statestore.transactions.compaction_jobs.remove_reference", remove)


def _ignore_holds() -> AbstractContextManager[Any]:
    claims = collection.find_claims

    def without_holds(*arguments: Any) -> Any:
        result = claims(*arguments)
        with arguments[0].reading() as state:
            return replace(result, horizon_max=state.number)

    return _both(
        patch.object(collection, "find_claims", without_holds),
        patch.object(CollectFiles, "_find_horizon_fault", lambda _self, _fold: None),
    )


class _both(AbstractContextManager[Any]):
    def __init__(self, *patches: AbstractContextManager[Any]) -> None:
        self._patches = patches

    def __enter__(self) -> None:
        for each in self._patches:
            each.__enter__()

    def __exit__(self, *error: Any) -> None:
        for each in self._patches:
            each.__exit__(*error)


_EXISTS = "every file that is needed exists"
_HORIZON = "the horizon passes no reader"
_REPEATED = ["a change is committed once", "no acknowledged write is lost"]
_ROWS = ["a version has exactly its rows", "a read returns the rows of one version"]


@pytest.mark.parametrize(
    ("plant", "focus", "rules"),
    [
        (_forget_deletes, ["delete_region", "query_newest"], _ROWS),
        (_keep_later_deletes, ["delete_region", "restore_version", "query_newest"], _ROWS),
        (_add_loads, ["ingest_from_memory"], _ROWS),
        (_pin_nothing, ["clone", "create_compactions", "work", "collect"], [_EXISTS]),
        (_age_off_later, ["query_version"], _ROWS),
        (_forget_job_ids, ["ingest_from_files", "repeat_ingest"], _REPEATED),
        (_leave_an_input, ["create_compactions", "work"], _ROWS),
        (_ignore_holds, ["hold_version", "create_compactions", "work", "collect"], [_HORIZON]),
    ],
)
def test_a_planted_bug_breaks_its_rule(
    tmp_path: Path, plant: Plant, focus: list[str], rules: list[str]
) -> None:
    assert _find_rule(tmp_path, plant, focus) in rules


def _find_rule(folder: Path, plant: Plant, focus: list[str]) -> str:
    """Returns the rule that is broken in the first history that breaks one."""
    for seed in range(_SEEDS_MAX):
        (folder / str(seed)).mkdir()
        driver = Driver(folder / str(seed), seed, focus)
        try:
            with plant():
                driver.run(_STEPS)
        except Violation as violation:
            return violation.rule
        except DataError:
            return _EXISTS  # a query met the missing file first
        finally:
            driver.close()
    pytest.fail(f"no violation in {_SEEDS_MAX} histories of {_STEPS} operations")
