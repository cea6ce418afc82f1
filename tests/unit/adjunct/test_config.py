"""The configuration of stores."""

from pathlib import Path
from typing import Any

import pytest

from sleeper.adjunct.config import (
    StoresConfig,
    StoreSettings,
    check_kinds,
    parse_config,
    read_config,
    stream_name,
)
from sleeper.adjunct.definition import EngineType, Partition, StoreDefinition
from sleeper.errors import InvalidRequestError

ACCOUNTS = {"stores.accounts.adstore.input": "table:accounts"}


def only(values: dict[str, str]) -> StoreSettings:
    (store,) = parse_config({**ACCOUNTS, **values}).stores
    return store


def test_a_store_needs_its_input_only() -> None:
    assert parse_config(ACCOUNTS) == StoresConfig(
        (StoreSettings(StoreDefinition("accounts", "table:accounts")),), None, ACCOUNTS
    )


def test_a_store_has_all_its_members() -> None:
    values = {
        "key.value.extractor.factory": "names",
        "bootstrap": "false",
        "reset.offset": "true",
        "type": "memory",
        "validity.max.age": "2h",
        "partition": "1/4",
        "ttl": "3600000",
        "broadcast": "true",
        "bounded": "true",
    }
    assert only({f"stores.accounts.adstore.{k}": v for k, v in values.items()}) == StoreSettings(
        StoreDefinition(
            "accounts",
            "table:accounts",
            EngineType.MEMORY,
            False,
            True,
            7_200,
            "names",
            Partition(1, 4),
            3_600_000,
        ),
        True,
        True,
    )


def test_a_file_has_the_form_of_java(tmp_path: Path) -> None:
    path = tmp_path / "stores.properties"
    path.write_text(
        "# stores\n"
        "stores.accounts.adstore.input: table:accounts\n"
        "stores.prices.adstore.input = \\\n   table:prices\n"
        "stores.accounts.factory=org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory\n"
        "stores.adstore.manager.factory=mine\n"
        "job.name=x\n"
    )
    config = read_config(path)
    assert [each.definition.input for each in config.stores] == ["table:accounts", "table:prices"]
    assert config.manager_factory == "mine"
    assert config.values["job.name"] == "x"


def test_two_inputs_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stores.properties"
    path.write_text("stores.a.adstore.input=table:a\n  stores.a.adstore.input : table:b\n")
    with pytest.raises(InvalidRequestError, match=r"stores\.a\.adstore\.input is there twice"):
        read_config(path)
    with pytest.raises(InvalidRequestError, match=r"nothing\.properties cannot be read"):
        read_config(tmp_path / "nothing.properties")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"stores.a.adstore.bootstrap": "true"}, r"'a' has no input .*stores\.a\.adstore\.input"),
        ({"stores.a.adstore.input": " "}, "'a' has no input"),
        ({"stores.a.adstore.input": "table:a, table:b"}, "names several inputs"),
        ({"stores.a.adstore.inputs": "table:a"}, "unknown name .* did you mean input"),
        ({"stores.a.adstor.input": "table:a"}, "unknown name .* did you mean adstore"),
        ({"stores.adstore.manager": "x"}, r"expected stores\.adstore\.manager\.factory"),
        ({"stores.a b.adstore.input": "table:a"}, "store name 'a b'"),
        ({"stores.accounts.adstore.type": "disk"}, r"accounts\.adstore\.type: store type 'disk'"),
        ({"stores.accounts.adstore.bootstrap": "yes"}, r"bootstrap: 'yes' .*true or false"),
        ({"stores.accounts.adstore.validity.max.age": "soon"}, r"max\.age: maximum age 'soon'"),
        ({"stores.accounts.adstore.validity.max.age": "0"}, r"max\.age: maximum age '0'"),
        ({"stores.accounts.adstore.partition": "4/4"}, r"partition: partition 4/4"),
        ({"systems.table.streams.accounts.samza.bootstrap": "y"}, r"samza\.bootstrap: 'y'"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse_config({**ACCOUNTS, **values})


def test_several_hosts_are_one_input() -> None:
    source = "kafka://a:9092,b:9092/accounts?value=json"
    assert only({"stores.accounts.adstore.input": source}).definition.input == source


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("kafka://a:9092,b:9092/accounts?value=json", "kafka.accounts"),
        ("kinesis:accounts", "kinesis.accounts"),
        ("table:accounts", "table.accounts"),
        ("kafka.accounts", "kafka.accounts"),
    ],
)
def test_streams_have_their_names_in_samza(source: str, name: str) -> None:
    assert stream_name(source) == name


@pytest.mark.parametrize("source", ["table:accounts", "kafka://h:1/accounts", "kafka.accounts"])
def test_settings_of_a_stream_are_those_of_its_store(source: str) -> None:
    system, stream = stream_name(source).split(".")
    names = f"systems.{system}.streams.{stream}.samza"
    values: dict[str, Any] = {
        "stores.accounts.adstore.input": source,
        f"{names}.bootstrap": "false",
        f"{names}.reset.offset": "true",
        "task.broadcast.inputs": f"other.stream#0, {system}.{stream}#[0-3]",
    }
    store = only(values)
    assert not store.definition.bootstrap
    assert store.definition.reset_offset
    assert store.is_broadcast
    # What is said of the store counts.
    own = {
        "stores.accounts.adstore.bootstrap": "true",
        "stores.accounts.adstore.broadcast": "false",
    }
    assert only({**values, **own}).definition.bootstrap
    assert not only({**values, **own}).is_broadcast


def test_an_age_may_be_in_milliseconds() -> None:
    age = only({"stores.accounts.adstore.validity.max.age": "86400000"}).definition.max_age_seconds
    assert age == 86_400


def test_inputs_of_unknown_kinds_are_refused() -> None:
    check_kinds(parse_config(ACCOUNTS))
    config = parse_config({"stores.a.adstore.input": "ftp:x"})
    with pytest.raises(InvalidRequestError, match=r"stores\.a\.adstore\.input: unknown input"):
        check_kinds(config)
