"""Conditions of statements are never evaluated on rows that a table hides."""

from collections.abc import Iterator
from typing import Any

import pytest

import sleeper
from sleeper.datafiles.engine.scan import NO_LIMIT
from sleeper.errors import InvalidRequestError
from sleeper.query.sql.service import open_sql
from tests.tables.poison import (
    EXPRESSIONS,
    HIDDEN,
    PLAIN,
    RESTRICTED_CALLER,
    compact_all,
    make_poisoned_tables,
)

STATEMENTS = [
    "SELECT id FROM {t} t WHERE id >= 0 AND {e} <> -1",
    "SELECT id FROM {t} t WHERE id > 4 AND {e} <> -1",
    "SELECT id, {e} AS v FROM {t} t",
    "SELECT id FROM {t} t ORDER BY {e} DESC, id LIMIT 3",
    "SELECT {e} AS v, count(*) AS c FROM {t} t GROUP BY 1",
    "SELECT max({e}) AS v FROM {t} t WHERE id < 7",
    "SELECT id FROM {t} t JOIN (SELECT id AS other FROM plain) ON {e} = other",
    "SELECT id, other FROM {t} t LEFT JOIN (SELECT id AS other FROM plain) ON {e} = other",
    "SELECT id FROM plain WHERE id IN (SELECT {e} FROM {t} t)",
    "SELECT id FROM {t} t WHERE id > 8 OR {e} > 0",
    "SELECT id, sum({e}) OVER (ORDER BY id) AS v FROM {t} t",
    "SELECT id FROM {t} t WHERE EXISTS (SELECT 1 FROM (SELECT id AS other FROM plain) "
    "WHERE other = {e})",
    "SELECT id FROM (SELECT * FROM {t} t UNION ALL SELECT * FROM plain) t WHERE {e} > 0",
]


@pytest.fixture(scope="module", params=["before a compaction", "after a compaction"])
def instance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sleeper.Instance]:
    with make_poisoned_tables(tmp_path_factory.mktemp("poison") / "instance") as opened:
        if request.param == "after a compaction":
            compact_all(opened)
        yield opened


def answer(instance: sleeper.Instance, statement: str) -> list[dict[str, Any]]:
    with open_sql(instance._ports, statement, caller=RESTRICTED_CALLER) as rows:
        return sorted(rows.read_all().to_pylist(), key=repr)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("table", HIDDEN)
def test_a_condition_is_not_evaluated_on_a_hidden_row(
    instance: sleeper.Instance, table: str, expression: str
) -> None:
    statement = f"SELECT id FROM {{t}} WHERE {expression} <> -1"
    expected = answer(instance, statement.format(t=PLAIN))
    assert len(expected) == 9
    assert answer(instance, statement.format(t=table)) == expected


@pytest.mark.parametrize("expression", ["10 / z", "CAST(text AS BIGINT)"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_part_of_a_statement_is_evaluated_on_a_hidden_row(
    instance: sleeper.Instance, statement: str, expression: str
) -> None:
    expected = answer(instance, statement.format(t=PLAIN, e=expression))
    for table in HIDDEN:
        assert answer(instance, statement.format(t=table, e=expression)) == expected, table


@pytest.mark.parametrize("table", HIDDEN)
def test_a_condition_that_fails_on_a_visible_row_fails_always(
    instance: sleeper.Instance, table: str
) -> None:
    reasons = []
    for name in (PLAIN, table):
        with pytest.raises(InvalidRequestError) as refused:
            answer(instance, f"SELECT id FROM {name} WHERE 10 / (z - 4) <> 0")
        reasons.append(str(refused.value))
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize("table", ["deleted", "aged", "cut"])
def test_only_conditions_that_cannot_fail_are_moved_to_the_scan(
    instance: sleeper.Instance, table: str
) -> None:
    conditions = "id > 3 AND z < 9 AND 10 / z >= 0 AND (text = '7' OR big IN (70, 80))"
    statement = f"SELECT id FROM {table} WHERE {conditions} ORDER BY 10 / z LIMIT 3"
    with open_sql(instance._ports, f"EXPLAIN FORMAT INDENT {statement}") as rows:
        plan = rows.read_all()["plan"].to_pylist()[-1]
    place = plan.index(str(NO_LIMIT))
    assert 0 < plan.rindex("10 / z") < place
    # The sort would have the scan compare its expression with the largest values so far.
    assert "DynamicFilter" not in plan
    scans = [line for line in plan.splitlines() if "DataSourceExec" in line]
    for scan in scans:
        predicate = scan.partition("predicate=")[2]
        for condition in ("id@0 >", "z@1 < 9", "text@4 = 7", "big@3 = 70"):
            assert condition in predicate, plan
