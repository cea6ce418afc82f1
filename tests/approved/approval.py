"""Comparison with approved text."""

import os
from pathlib import Path

_EXPECTED = Path(__file__).parent / "expected"


def check_approved(name: str, text: str) -> None:
    """Fails unless the text equals the approved text; APPROVE=1 approves it."""
    path = _EXPECTED / name
    if os.environ.get("APPROVE") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    approved = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == approved
