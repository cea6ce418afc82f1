"""Adds the account of each visit, from a local copy of a table that follows its changes.

Reads visits as JSON lines from standard input, and writes them with `name` and `city`. Usage:

    SLEEPER_INSTANCE=... python enrich_visits.py STORES < visits.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from sleeper.adjunct import AdjunctStore

INPUT = "table:accounts"
UNKNOWN = {"name": None, "city": None}


def enrich(visits: Iterable[dict[str, Any]], accounts: AdjunctStore) -> Iterator[dict[str, Any]]:
    """Yields each visit with the fields of its account as they are now."""
    for visit in visits:
        account = accounts.get(visit["account"]) or UNKNOWN
        yield visit | {"name": account["name"], "city": account["city"]}


def main(folder: str) -> None:
    """Enriches the visits of standard input, one by one."""
    with AdjunctStore.open("accounts", input=INPUT, path=folder, refresh_seconds=0.1) as accounts:
        for visit in enrich(map(json.loads, sys.stdin), accounts):
            print(json.dumps(visit), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
