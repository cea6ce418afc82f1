"""Adapters of an instance on AWS: definitions, a secret and history."""

from dataclasses import replace

import boto3
import pytest

from sleeper.adapters.properties import ADAPTER_SECRETS
from sleeper.adapters.report import list_adapters, show_adapter
from sleeper.adapters.run import run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.reports.output import json_rows
from tests.servers.postgres import Postgres

SCHEMA = (
    '{"rowKeyFields": [{"name": "id", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
SNAPSHOT = {"sleeper.table.type": "snapshot"}


def _bind(instance: Instance, secrets: str) -> None:
    """Binds secrets to hosts, as a deployment does."""
    instance.change_properties({ADAPTER_SECRETS.name: secrets})


def test_a_database_feeds_a_snapshot_table_which_feeds_another(
    instance_on_aws: Instance, postgres_database: Postgres
) -> None:
    instance = instance_on_aws
    create_table(instance, "a", SCHEMA, SNAPSHOT)
    create_table(instance, "b", SCHEMA, SNAPSHOT)
    postgres_database.run("CREATE TABLE orders AS SELECT 1::bigint AS id, 'x' AS v")
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(
        Name="shop", SecretString=f'{{"password": "{postgres_database.password}"}}'
    )
    url = postgres_database.url
    new = NewAdapter("orders", url, "a", table="orders", password="secret:shop")
    with pytest.raises(InvalidRequestError, match="secret:shop is not a secret that tasks may re"):
        create_adapter(instance, new)
    here = f"127.0.0.1:{postgres_database.port}"
    _bind(instance, f"shop@{here},nosuch@{here}")
    with pytest.raises(InvalidRequestError, match="secret nosuch does not exist"):
        create_adapter(instance, replace(new, password="secret:nosuch"))
    create_adapter(instance, new)
    with pytest.raises(ConflictError):
        create_adapter(instance, NewAdapter("orders", ["table:a"], "b"))
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    first = run_adapter(instance, "orders", "r1")
    assert run_adapter(instance, "orders", "r1").done_before
    _bind(instance, "shop@db.example,shop@127.0.0.1:1")
    with pytest.raises(InvalidRequestError, match=f"secret:shop may not be sent to {here}"):
        run_adapter(instance, "orders", "r2")
    with pytest.raises(InvalidRequestError, match=f"secret:shop may not be sent to {here}"):
        create_adapter(instance, replace(new, name="again"))
    run_adapter(instance, "copy")
    with open_query(instance, "b", Query()) as result:
        assert result.read_all().to_pylist() == [{"id": 1, "v": "x"}]
    (shown,) = json_rows(show_adapter(instance, "copy", 9)[1])
    assert (shown["rows"], shown["source"]) == (1, f"table a at version {first.number}")
    assert [each["adapter"] for each in json_rows(list_adapters(instance))] == ["copy", "orders"]
    AdapterStore(instance.storage.root).delete("copy")
    with pytest.raises(NotFoundError):
        run_adapter(instance, "copy")
