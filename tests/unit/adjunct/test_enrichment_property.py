"""The property that declares what the ingests of a table look up: checks when it is set."""

from typing import Any

import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from tests.unit.adjunct.enriched_tables import (
    ACCOUNTS,
    LOOKUP,
    PROPERTY,
    VISITS,
    declare,
    set_properties,
)


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("accounts", ACCOUNTS)


@pytest.fixture
def visits(instance: sleeper.Instance, accounts: sleeper.Table) -> sleeper.Table:
    return instance.create_table("visits", VISITS, declare(LOOKUP))


@pytest.mark.parametrize(
    ("lookup", "problem"),
    [
        ({"input": "table:nothing"}, "nothing"),
        ({"input": "table:visits"}, "itself"),
        ({"input": "redis:accounts"}, "unknown input 'redis:accounts'"),
        ({"store": "a/b"}, "store name 'a/b'"),
        ({"on": "place"}, "no field 'place'"),
        ({"on": ["account", "at"]}, "the key is id"),
        ({"on": {"number": "account"}}, "the key is id"),
        ({"on": "account_country"}, "part of its key"),
        ({"on": []}, "a field, a list of fields"),
        ({"fields": ["size"]}, "'size' does not exist"),
        ({"fields": {"country": "at"}}, "'at' is a key field"),
        ({"fields": {"city": "account_country"}}, "no field 'city'"),
        ({"fields": {"country": "account_size"}}, "is StringType, and field 'account_size'"),
        ({"fields": "country"}, "a list of fields"),
        ({"fields": {}}, "a list of fields"),
        ({"missing": "drop"}, "missing"),
        ({"where": "x"}, "unknown member 'where'"),
    ],
)
def test_a_lookup_that_does_not_fit_is_refused(
    instance: sleeper.Instance, visits: sleeper.Table, lookup: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as refused:
        set_properties(instance, declare({**LOOKUP, **lookup}))
    assert PROPERTY in str(refused.value)
    with pytest.raises(InvalidRequestError):
        instance.create_table("others", VISITS, declare({**LOOKUP, **lookup, "x": 1}))


@pytest.mark.parametrize("text", ["[]", "{}", "x", '["a"]'])
def test_text_that_is_no_list_of_lookups_is_refused(
    instance: sleeper.Instance, visits: sleeper.Table, text: str
) -> None:
    with pytest.raises(InvalidRequestError, match="enrichment"):
        set_properties(instance, {PROPERTY: text})


def test_two_lookups_may_not_fill_one_field(
    instance: sleeper.Instance, visits: sleeper.Table
) -> None:
    with pytest.raises(InvalidRequestError, match="filled twice"):
        set_properties(instance, declare(LOOKUP, LOOKUP))


def test_a_store_has_one_input(instance: sleeper.Instance, visits: sleeper.Table) -> None:
    instance.create_table("others", ACCOUNTS)
    first = {**LOOKUP, "fields": {"country": "account_country"}}
    second = {**LOOKUP, "fields": {"size": "account_size"}, "input": "table:others"}
    with pytest.raises(InvalidRequestError, match="has the inputs"):
        set_properties(instance, declare(first, second))


def test_a_null_field_cannot_be_asked_for_where_it_does_not_fit(
    instance: sleeper.Instance, accounts: sleeper.Table
) -> None:
    values = [{"name": "account", "type": "LongType"}, {"name": "country", "type": "StringType"}]
    schema = {"rowKeyFields": VISITS["rowKeyFields"], "valueFields": values}
    with pytest.raises(InvalidRequestError, match="not nullable and has no default"):
        instance.create_table(
            "strict", schema, declare({**LOOKUP, "fields": ["country"], "missing": "null"})
        )


def test_a_key_of_another_type_is_refused(instance: sleeper.Instance) -> None:
    text = {**ACCOUNTS, "rowKeyFields": [{"name": "id", "type": "StringType"}]}
    instance.create_table("accounts", text)
    with pytest.raises(InvalidRequestError, match="is LongType, and the key 'id' is StringType"):
        instance.create_table("visits", VISITS, declare(LOOKUP))


def test_a_field_in_use_is_neither_dropped_nor_renamed(
    instance: sleeper.Instance, visits: sleeper.Table
) -> None:
    for name in ("account", "account_country"):
        with pytest.raises(InvalidRequestError, match=f"field '{name}' is used by the enrichment"):
            visits.rename_field(name, "other")
    set_properties(instance, {PROPERTY: ""})
    visits.drop_field("account_country")
