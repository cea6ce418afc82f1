"""What callers may see, as a table's property says it."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.processing.model import IteratorCall
from sleeper.processing.restriction import (
    NO_RESTRICTION,
    RESTRICTION,
    Restriction,
    find_chain_restriction,
    find_restriction,
    parse_callers,
    visible_columns,
)
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("k", PrimitiveType.LONG),),
    values=(Field("v", PrimitiveType.LONG), Field("w", PrimitiveType.LONG)),
)
CALLERS = (
    '{"AROA1": {"valueFields": ["v"], "iterator": "RowSecurity", "config": "w,a"},'
    ' "AROA1:admin": {}, "*": {"valueFields": []}}'
)


def test_a_role_counts_for_its_sessions_unless_one_is_named():
    restriction = Restriction(("v",), IteratorCall("RowSecurity", "w,a"))
    assert find_restriction(CALLERS, "AROA1:somebody", "t") == restriction
    assert find_restriction(CALLERS, "AROA1:admin", "t") == NO_RESTRICTION
    assert find_restriction(CALLERS, "AROA2:x", "t") == Restriction(())


def test_without_the_property_callers_are_unrestricted():
    assert find_restriction(None, "anybody", "t") == NO_RESTRICTION


def test_an_unnamed_caller_may_not_query():
    with pytest.raises(InvalidRequestError, match="'AROA2' may not query table 't'"):
        find_restriction('{"AROA1": {}}', "AROA2", "t")
    with pytest.raises(InvalidRequestError, match="may not query"):
        find_restriction("{}", "AROA2", "t")


def test_a_caller_on_behalf_of_another_must_be_unrestricted_and_gets_the_others_restriction():
    restriction = Restriction(("v",), IteratorCall("RowSecurity", "w,a"))
    assert find_chain_restriction(CALLERS, ["AROA1:admin"], "t") == NO_RESTRICTION
    assert find_chain_restriction(CALLERS, ["AROA1:admin", "AROA1:x"], "t") == restriction
    for chain in (["AROA1:x", "AROA1:admin"], ["AROA1:admin", "AROA2", "AROA1:admin"]):
        with pytest.raises(
            InvalidRequestError, match="may not query table 't' on behalf of another"
        ):
            find_chain_restriction(CALLERS, chain, "t")
    with pytest.raises(InvalidRequestError, match="may not query"):
        find_chain_restriction('{"AROA1": {}}', ["AROA1", "AROA2"], "t")
    assert find_chain_restriction(None, ["a", "b"], "t") == NO_RESTRICTION


def test_columns_are_the_visible_ones():
    restriction = Restriction(("v",))
    assert visible_columns(restriction, SCHEMA, None) == ("k", "v")
    assert visible_columns(restriction, SCHEMA, ("v",)) == ("v",)
    with pytest.raises(InvalidRequestError, match=r"'w' is not visible.*: k, v"):
        visible_columns(restriction, SCHEMA, ("k", "w"))
    assert visible_columns(NO_RESTRICTION, SCHEMA, None) is None


@pytest.mark.parametrize(
    "restriction",
    [Restriction(()), Restriction(("v",)), Restriction(None, IteratorCall("A", "c"))],
)
def test_a_restriction_round_trips_through_json(restriction):
    assert RESTRICTION.decode(RESTRICTION.encode(restriction)) == restriction


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "not JSON"),
        ("[]", "expected an object"),
        ('{"a": []}', r"caller 'a': it is \[\] \(expected an object\)"),
        ('{"a": {"valuefields": []}}', "caller 'a': unknown member 'valuefields'"),
        ('{"a": {"valueFields": "v"}}', "expected a list"),
        ('{"a": {"iterator": 7}}', '"iterator" is 7'),
        ('{"a": {"config": "x"}}', "without a name"),
    ],
)
def test_invalid_callers_are_refused(text, complaint):
    with pytest.raises(InvalidRequestError, match=complaint):
        parse_callers(text)
