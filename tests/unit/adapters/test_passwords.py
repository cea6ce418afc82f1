"""Secrets are sent only to hosts for which they are listed."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.adapters.definition import Adapter, DatabaseSource, TableSink
from sleeper.adapters.passwords import read_password
from sleeper.adapters.properties import ADAPTER_SECRETS
from sleeper.adapters.run import run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table
from sleeper.databases.url import parse_database_url
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.bound_secrets import BOUND_SECRETS, BoundSecret, secret_names

ARN = "arn:aws:secretsmanager:eu-west-2:123456789012:secret:shop-AbCdEf"
SCHEMA = '{"rowKeyFields": [{"name": "id", "type": "LongType"}]}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("shop", (BoundSecret("shop"),)),
        ("shop@db.example", (BoundSecret("shop", "db.example"),)),
        ("shop@DB.example:5433", (BoundSecret("shop", "db.example", 5433),)),
        ("a@b@db.example", (BoundSecret("a@b", "db.example"),)),
        (f"{ARN}@db.example:1", (BoundSecret(ARN, "db.example", 1),)),
        (ARN, (BoundSecret(ARN),)),
        ("shop@*", (BoundSecret("shop", "*"),)),
        ("shop@[::1]", (BoundSecret("shop", "::1"),)),
        ("a@[::1]:5432, b@h", (BoundSecret("a", "::1", 5432), BoundSecret("b", "h"))),
    ],
)
def test_secrets_are_listed_with_their_hosts(text: str, expected: tuple[BoundSecret, ...]) -> None:
    parsed = BOUND_SECRETS.parse(text)
    assert parsed == expected
    assert BOUND_SECRETS.parse(BOUND_SECRETS.format(parsed)) == parsed


@pytest.mark.parametrize("text", ["shop@", "@db", "shop@h:", "shop@h:port", "shop@a/b", "shop@[h]"])
def test_other_places_are_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        BOUND_SECRETS.parse(text)


def test_a_secret_of_several_hosts_is_named_once() -> None:
    assert secret_names(BOUND_SECRETS.parse("a@x,b@*,a@y")) == ("a", "b")


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("postgresql://h/d", {("h", 5432)}),
        ("mysql://h:1/d", {("h", 1)}),
        ("mariadb:///d", {("localhost", 3306)}),
        ("postgresql://a,b/d?host=c&hostaddr=1.2.3.4", {(h, 5432) for h in ("a", "b", "c")}),
        ("postgresql://h:1/d?port=2,3", {("h", 1), ("h", 2), ("h", 3)}),
        ("postgresql:///d?host=/tmp&port=5", {("/tmp", 5)}),
    ],
)
def test_all_addresses_of_a_url_count(url: str, addresses: set[tuple[str, int]]) -> None:
    assert set(parse_database_url(url).addresses) >= addresses


@pytest.fixture
def make_remote(tmp_path: Path) -> Iterator[Callable[[str], Instance]]:
    """Returns a function that binds secrets in an instance with Secrets Manager."""
    create_local_instance(tmp_path / "instance")
    instance = open_local_instance(tmp_path / "instance")
    create_table(instance, "orders", SCHEMA)

    def make(secrets: str) -> Instance:
        instance.change_properties({ADAPTER_SECRETS.name: secrets})
        return replace(instance, read_secret=lambda name: f"password of {name}")

    yield make
    instance.close()


@pytest.mark.parametrize(
    ("listed", "url", "problem"),
    [
        ("shop@db.example", "postgresql://db.example/d", None),
        ("shop@db.example", "postgresql://DB.example:5433/d", None),
        ("shop@a,shop@db.example:5432", "postgresql://db.example/d", None),
        ("shop@*", "postgresql://anywhere/d", None),
        ("shop@db.example:5432", "postgresql://db.example:5433/d", "sent to db.example:5433"),
        ("shop@db.example", "postgresql://evil/d", "sent to evil:5432"),
        ("shop@db.example", "postgresql://db.example,evil/d", "sent to evil:5432"),
        ("shop@db.example", "postgresql://db.example/d?host=evil", "sent to evil:5432"),
        ("shop@db.example", "postgresql://db.example/d?hostaddr=1.2.3.4", "sent to 1.2.3.4:5432"),
        ("shop@db.example", "mariadb://xdb.example/d", "sent to xdb.example:3306"),
        ("shop", "postgresql://db.example/d", r"expected shop@db\.example in sleeper\.adapter"),
        ("other@db.example", "postgresql://db.example/d", "is not a secret that tasks may read"),
    ],
)
def test_a_secret_goes_to_its_hosts_only(
    make_remote: Callable[[str], Instance], listed: str, url: str, problem: str | None
) -> None:
    remote = make_remote(listed)
    source = DatabaseSource(url, table="t", password="secret:shop")
    if problem is None:
        assert read_password(remote, source) == "password of shop"
        return
    with pytest.raises(InvalidRequestError, match=problem):
        read_password(remote, source)
    new = NewAdapter("shop", url, "orders", table="t", password="secret:shop", check=False)
    with pytest.raises(InvalidRequestError, match=problem):
        create_adapter(remote, new)
    AdapterStore(remote.storage.root).create(Adapter("shop", source, TableSink("orders")))
    with pytest.raises(InvalidRequestError, match=problem):
        run_adapter(remote, "shop")


def test_passwords_of_this_machine_are_not_bound(
    make_remote: Callable[[str], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "word")
    source = DatabaseSource("postgresql://anywhere/d", table="t", password="env:SHOP_PASSWORD")
    assert read_password(make_remote(""), source) == "word"
    assert read_password(make_remote(""), replace(source, password=None)) is None
