"""Schema JSON (docs/formats.md, "Schema JSON"): read, written, refused."""

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import (
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    schema_from_json,
    schema_to_json,
)
from sleeper.schema.user_json import parse_user_schema

EXAMPLE = (
    '{"rowKeyFields":[{"name":"id","type":"StringType"}],'
    '"sortKeyFields":[{"name":"time","type":"LongType"}],'
    '"valueFields":[{"name":"count","type":"IntType","nullable":true},'
    '{"name":"tags","type":{"ListType":{"elementType":"StringType"}}},'
    '{"name":"props","type":{"MapType":{"keyType":"StringType","valueType":"LongType"}}},'
    '{"name":"price","type":{"DecimalType":{"precision":12,"scale":2}}}]}'
)


def test_the_example_of_the_formats_reads_and_writes_back_the_same() -> None:
    schema = schema_from_json(EXAMPLE)
    assert [f.name for f in schema.fields] == ["id", "time", "count", "tags", "props", "price"]
    assert schema.field("count").nullable
    assert schema.field("tags").type == ListType(PrimitiveType.STRING)
    assert schema.field("props").type == MapType(PrimitiveType.STRING, PrimitiveType.LONG)
    assert schema.field("price").type == DecimalType(12, 2)
    assert schema_to_json(schema) == EXAMPLE


def test_sort_and_value_lists_may_be_missing() -> None:
    schema = schema_from_json('{"rowKeyFields":[{"name":"k","type":"ByteArrayType"}]}')
    assert schema.fields == schema.row_keys


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ("{}", '"rowKeyFields" is missing'),
        ('{"rowKeyFields":[]}', "no row key field"),
        (
            '{"rowKeyFields":[{"name":"a"}]}',
            r'"rowKeyFields\[0\].type" is missing .expected one of IntType',
        ),
        ('{"rowKeyFields":[{"name":"a","type":"TextType"}]}', "TextType"),
        ('{"rowKeyFields":[{"name":"a","type":"FloatType"}]}', "key field 'a' has type FloatType"),
        ('{"rowKeyFields":[{"name":"a","type":"IntType","nullable":true}]}', "cannot be nullable"),
        (
            '{"rowKeyFields":[{"name":"a","type":"IntType"}],'
            '"valueFields":[{"name":"a","type":"IntType"}]}',
            "'a' is declared more than once",
        ),
        (
            '{"rowKeyFields":[{"name":"a","type":"IntType"}],"valueFields":'
            '[{"name":"d","type":{"DecimalType":{"precision":40,"scale":2}}}]}',
            "precision 1 to 38",
        ),
        ('{"rowKeyFields":[{"name":"","type":"IntType"}]}', "is empty"),
        ('{"rowKeyFields":["a"]}', r"rowKeyFields\[0\]"),
    ],
)
def test_a_wrong_schema_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        schema_from_json(text)


def test_a_type_in_the_form_of_options_is_refused_with_its_json() -> None:
    text = """{"rowKeyFields":[{"name":"k","type":"IntType"}],
               "valueFields":[{"name":"v","type":"ListType(DecimalType(9,2))"}]}"""
    with pytest.raises(InvalidRequestError) as refusal:
        parse_user_schema(text)
    form = '{"ListType": {"elementType": {"DecimalType": {"precision": 9, "scale": 2}}}}'
    assert str(refusal.value).endswith(f"(expected {form})")


def test_a_key_that_is_no_unicode_text_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"'k'.*not Unicode text"):
        check_key_value(Field("k", PrimitiveType.STRING), "a\ud800")
