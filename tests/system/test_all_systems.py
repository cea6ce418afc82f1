"""Adapters, snapshot tables, adjunct stores, enrichment, export queues and stashes at once.

A table of customers in PostgreSQL is loaded into a snapshot table. Its publication switches the
store that enriches orders at their ingest. The orders leave through an export queue to an index. A
stash and the changes after it make the same index again.
"""

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from docs.examples import bootstrap
from sleeper.adapters.run import run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adjunct import AdjunctStore
from sleeper.export_queue.control import queue_status
from sleeper.stash.run import run_stash
from tests.seeds import choose_seed
from tests.servers.postgres import Postgres
from tests.system.export_runs import running, wait_until

pytestmark = pytest.mark.slow

CUSTOMERS: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "country", "type": "StringType", "nullable": True}],
}
ORDERS: dict[str, Any] = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "customer", "type": "LongType"},
        {"name": "country", "type": "StringType", "nullable": True},
    ],
}
LOOKUP = {
    "store": "customers",
    "input": "table:customers",
    "on": "customer",
    "fields": ["country"],
}
ORDER_COUNT, CUSTOMER_COUNT, DAYS = 60, 12, 4

Index = dict[int, tuple[int, str | None]]
"""The customer and country of each order."""


class Shop:
    """Customers in a database and orders in a table, with what the orders must be."""

    def __init__(self, folder: Path, database: Postgres, instance: sleeper.Instance) -> None:
        self._database = database
        self._random = random.Random(choose_seed())
        self._countries: dict[int, str] = {}
        self._folder = folder
        self.instance = instance
        self.expected: Index = {}
        database.run("CREATE TABLE customers (id bigint primary key, country text)")
        instance.create_table("customers", CUSTOMERS, {"sleeper.table.type": "snapshot"})
        options: dict[str, Any] = {"table": "customers", "password": "env:SHOP_PASSWORD"}
        create_adapter(
            instance._ports, NewAdapter("customers", [database.url], "customers", **options)
        )
        properties = {
            "sleeper.table.rows": "latest",
            "sleeper.table.ingest.enrichment": json.dumps([LOOKUP]),
        }
        self.orders = instance.create_table("orders", ORDERS, properties)
        instance.create_export_queue(
            "index",
            "orders",
            on="ingest",
            keys="id",
            values=["customer", "country"],
            exporter="table:index",
        )

    def change_customers(self) -> dict[int, str]:
        """Changes some customers in the database and loads them. Returns all of them."""
        for customer in self._random.sample(range(CUSTOMER_COUNT), 5):
            self._database.run(f"DELETE FROM customers WHERE id = {customer}")
            self._countries.pop(customer, None)
            if self._random.random() < 0.7:
                country = f"country {self._random.randrange(1000)}"
                self._database.run(f"INSERT INTO customers VALUES ({customer}, '{country}')")
                self._countries[customer] = country
        run_adapter(self.instance._ports, "customers")
        return dict(self._countries)

    def change_orders(self) -> None:
        """Ingests some orders, which lack their country, and deletes others."""
        ids = self._random.sample(range(ORDER_COUNT), 15)
        customers = [self._random.randrange(CUSTOMER_COUNT) for _ in ids]
        self.orders.ingest(pa.table({"id": ids, "customer": customers}))
        for order, customer in zip(ids, customers, strict=True):
            self.expected[order] = (customer, self._countries.get(customer))
        gone = self._random.sample(range(ORDER_COUNT), 3)
        self.orders.delete(keys=[[order] for order in gone])
        for order in gone:
            self.expected.pop(order, None)

    def index(self) -> Index:
        """Returns what arrived in the index."""
        found = self.instance.table("index").query().to_arrow().to_pylist()
        return {row["id"]: (row["customer"], row["country"]) for row in found}

    def index_of_stash(self, destination: str) -> Index:
        """Makes the index of a stash and the changes after it."""
        copy = self._folder / "copy.db"
        bootstrap.defer(self.instance._ports.where, "orders", destination, str(copy))
        with closing(sqlite3.connect(copy)) as database:
            found = [json.loads(text) for (text,) in database.execute("SELECT content FROM rows")]
        return {row["id"]: (row["customer"], row["country"]) for row in found}


@pytest.fixture
def shop(
    postgres_database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("SHOP_PASSWORD", postgres_database.password)
    with sleeper.create_instance(tmp_path / "instance") as instance:
        yield Shop(tmp_path, postgres_database, instance)


def test_an_index_of_enriched_orders_is_made_again_from_a_stash(shop: Shop, tmp_path: Path) -> None:
    shop.change_customers()
    destination = str(tmp_path / "stash")
    queue = shop.instance._ports
    with (
        running(queue),
        AdjunctStore.open(
            "customers", "table:customers", tmp_path, instance=shop.instance, refresh_seconds=0.05
        ) as customers,
    ):
        for day in range(DAYS):
            countries = shop.change_customers()
            expected = {customer: {"country": country} for customer, country in countries.items()}
            # The publication of the version switches the store.
            wait_until(lambda expected=expected: dict(customers.all()) == expected)  # type: ignore[misc]
            for _ in range(3):
                shop.change_orders()
            if day == DAYS // 2:
                run_stash(queue, destination, ["orders"])
        wait_until(lambda: queue_status(queue, "index").lag == 0)
        wait_until(lambda: queue_status(queue, "index").pending == 0)
    assert queue_status(queue, "index").dead == 0
    assert shop.index() == shop.expected
    assert shop.index_of_stash(destination) == shop.expected
    with AdjunctStore.open("orders", "table:orders", tmp_path, instance=shop.instance) as orders:
        found = {key: (value["customer"], value["country"]) for key, value in orders.all()}
    assert found == shop.expected
    assert {country for _, country in found.values()} - {None}
