"""The example of adjunct stores, `examples/adjunct/enrich_visits.py`."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import sleeper

EXAMPLE = Path(__file__).parents[2] / "examples" / "adjunct" / "enrich_visits.py"
SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}, {"name": "city", "type": "StringType"}],
}


def test_visits_are_enriched_with_accounts_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    sleeper.create_instance(folder)
    with sleeper.open_instance(folder) as instance:
        table = instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})
        table.ingest(pa.table({"id": [1, 2], "name": ["Ada", "Bo"], "city": ["Rome", "Oslo"]}))
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), str(tmp_path / "stores")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SLEEPER_INSTANCE": str(folder)},
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def visit(account: int) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"account": account, "page": "/"}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            assert visit(1) == {"account": 1, "page": "/", "name": "Ada", "city": "Rome"}
            assert visit(3) == {"account": 3, "page": "/", "name": None, "city": None}
            # A change arrives while the job runs.
            table.ingest(pa.table({"id": [1], "name": ["Ada"], "city": ["Paris"]}))
            deadline = time.monotonic() + 60
            while visit(1)["city"] != "Paris":
                assert time.monotonic() < deadline
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
