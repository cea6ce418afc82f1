import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.properties.java_text import read_properties_text, write_properties_text

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(TEXT, TEXT))
def test_written_text_reads_back(values: dict[str, str]) -> None:
    assert read_properties_text(write_properties_text(values)) == values


@given(st.dictionaries(TEXT, TEXT))
def test_written_text_is_ascii_with_one_line_per_value(values: dict[str, str]) -> None:
    text = write_properties_text(values)
    assert text.isascii()
    assert len(text.splitlines()) == len(values)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = read_properties_text(text)
    except InvalidRequestError:
        assert "\\u" in text
    else:
        assert all(values.values())


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("url=https://sqs/1", {"url": "https://sqs/1"}),
        ("url=https\\://sqs/1", {"url": "https://sqs/1"}),
        (r"a=\=\#\!\\\n", {"a": "=#!\\\n"}),
        ("a=one,\\\n    two", {"a": "one,two"}),
        ("a=ends in two\\\\\nb=1", {"a": "ends in two\\", "b": "1"}),
        ("# c=1\n! d=2\n\na=1", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=", {}),
        ("a", {}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\na=", {}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (r"a=\u00e9", {"a": "é"}),
        (r"a=\uD83D\uDE00", {"a": "😀"}),
        (r"a\ b\:c=1", {"a b:c": "1"}),
        (r"a=\q", {"a": "q"}),
        ("a=trailing\\", {"a": "trailing"}),
    ],
)
def test_reads_what_java_reads(text: str, values: dict[str, str]) -> None:
    assert read_properties_text(text) == values


def test_writes_what_java_writes() -> None:
    assert write_properties_text({"b": "x=y#z!\\\n", "a": "https://é", "c": " d", "e": ""}) == (
        "a=https\\://\\u00E9\nb=x\\=y\\#z\\!\\\\\\n\nc=\\ d\n"
    )


def test_a_broken_escape_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidRequestError, match=r"line 2: \\u12G4"):
        read_properties_text("a=1\nb=\\u12G4")
