"""Random JSON documents, as they may be written, and paths into them."""

import json
from typing import Any

from hypothesis import strategies as st

# Names of many sizes, with bytes that have a meaning outside of texts.
NAMES = st.sampled_from(
    ["", "a", "b", "é", "a.b", 'q"', "\\", "\\n", "\n", "{", '","', "x" * 7, "x" * 8, "x" * 70]
)
NUMBERS = st.sampled_from(
    ["0", "-0", "1.10", "1e400", "-7", str(2**63 - 1), str(-(2**63)), "9" * 30]
)
BLANKS = st.sampled_from(["", "", " ", "\n\t", " " * 9])


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def _leaves() -> st.SearchStrategy[Any]:
    # PostgreSQL has no text with NUL.
    characters = st.characters(codec="utf-8", exclude_characters="\0")
    texts = st.one_of(NAMES, st.text(characters, max_size=5))
    return st.one_of(st.sampled_from([None, True, False]), NUMBERS.map(Number), texts)


VALUES = st.recursive(
    _leaves(),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
PATHS = st.lists(st.one_of(NAMES, st.integers(-2, 2)), max_size=3).map(tuple)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Writes a value as JSON, with any blanks and escapes."""
    before, after = draw(BLANKS), draw(BLANKS)
    if isinstance(value, dict):
        members = [f"{draw(written(k))}:{draw(written(v))}" for k, v in value.items()]
        text = "{" + (",".join(members) or draw(BLANKS)) + "}"
    elif isinstance(value, list):
        text = "[" + (",".join(draw(written(each)) for each in value) or draw(BLANKS)) + "]"
    elif isinstance(value, Number):
        text = str(value)
    else:
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        if isinstance(value, str) and "\\" not in text and draw(st.booleans()):
            text = text.replace("a", "\\u0061").replace("x", "\\u0078")
    return before + text + after
