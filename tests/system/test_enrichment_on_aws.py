"""Ingests that are enriched, in an instance on AWS."""

import pytest

import sleeper
from sleeper.instance import Instance
from tests.unit.adjunct.enriched_tables import (
    ACCOUNTS,
    LOOKUP,
    VISITS,
    account_rows,
    declare,
    found,
    visit_rows,
)


@pytest.mark.slow
def test_rows_are_enriched_from_the_state_on_aws(instance_on_aws: Instance) -> None:
    opened = sleeper.Instance(instance_on_aws)
    accounts = opened.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})
    visits = opened.create_table("visits", VISITS, declare(LOOKUP))
    accounts.ingest(account_rows({1: ("de", 10), 2: ("fr", 20)}))
    visits.ingest(visit_rows(1))
    accounts.ingest(account_rows({1: ("it", 11)}))
    visits.ingest(visit_rows(2, 1))
    assert found(visits) == [(0, 1, "de", 10), (0, 2, "fr", 20), (1, 1, "it", 11)]
    # On the disk of the process, so that another process of the task finds it.
    (store,) = instance_on_aws.storage.shared_folder("adjunct").iterdir()
    assert (store / "current").exists()
