"""A client: a process that runs commands of the command line, one after the other.

It reads a JSON object a line: the arguments, and files to upload before. It answers each with the
exit status, the output and the end of the errors. Two commands are its own: `stream TABLE FILE
SECONDS` reads all rows of a table slowly, batch by batch, into a file, and `read-stash DESTINATION
TABLE FILE` those of a stash.
"""

import json
import sys
import time
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from typer.testing import CliRunner

import sleeper
from sleeper.cli.main import app
from sleeper.errors import SleeperError
from sleeper.stash import Stash

_SHOWN_CHARACTERS = 1500
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(request)), file=answers, flush=True)


def answer(request: dict[str, Any]) -> dict[str, object]:
    """Does what a line says."""
    command, *arguments = request["arguments"]
    try:
        for path, bucket, key in request["uploads"]:
            boto3.client("s3").upload_file(path, bucket, key)
        match command:
            case "stream":
                stream(arguments[0], arguments[1], float(arguments[2]))
            case "read-stash":
                read_stash(*arguments)
            case _:
                return run([command, *arguments])
    except (SleeperError, BotoCoreError, ClientError, Boto3Error) as error:
        return {"status": 1, "output": "", "error": f"{type(error).__name__}: {error}"}
    return {"status": 0, "output": "", "error": ""}


def run(arguments: list[str]) -> dict[str, object]:
    """Runs a command."""
    result = CliRunner().invoke(app, arguments)
    error = result.stderr[-_SHOWN_CHARACTERS:]
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error += f" {result.exception!r}"
    return {"status": result.exit_code, "output": result.stdout, "error": error}


def stream(table: str, path: str, seconds: float) -> None:
    """Reads a table, and waits between its batches for these seconds in total."""
    batches: list[pa.RecordBatch] = []
    with sleeper.open_instance() as instance, instance.table(table).query() as rows:
        schema = instance.table(table).arrow_schema
        for batch in rows:
            batches.append(batch)
            time.sleep(seconds / (1 + len(batches)))
    pq.write_table(pa.Table.from_batches(batches, schema), path)


def read_stash(destination: str, table: str, path: str) -> None:
    """Reads a table of the newest complete stash."""
    with Stash.open(destination).scan(table) as rows:
        pq.write_table(pa.Table.from_pylist([*rows], ROWS), path)


if __name__ == "__main__":
    main()
