"""The Python reference against the docstrings that it is generated from."""

from pathlib import Path

import pytest

import sleeper
from tools.python_reference import reference_page

PAGE = Path(__file__).parents[3] / "docs" / "python-reference.md"


@pytest.mark.generated
def test_the_page_is_what_the_docstrings_generate() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), (
        "stale: run python tools/python_reference.py > docs/python-reference.md"
    )


def test_the_page_has_every_public_name() -> None:
    page = reference_page()
    for name in set(sleeper.__all__) - {"__version__"}:
        assert f"### {name}\n" in page or f"### sleeper.{name}\n" in page, name
