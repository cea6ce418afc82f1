"""Generates `docs/openapi.json`: `python -m sleeper.serve.docs > docs/openapi.json`."""

import json
import sys

from sleeper.serve.description import description


def openapi_text() -> str:
    """The file's text."""
    return json.dumps(description(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
