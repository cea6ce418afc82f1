"""A control-plane function as Lambda starts it: a fresh process, its import, its first event."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sleeper.jobs.queue import QueueName
from tests.child_processes import python_path

ROOT = Path(__file__).parents[2]
EVENTS = Path(__file__).parent / "events"
EVENT_OF = {
    "start_bulk_import": "sqs.json",
    "watch_bulk_imports": "schedule.json",
    **dict.fromkeys(
        ("create_ingest_batches", "fan_out_tables", "start_tasks", "sweep_instance"),
        "schedule.json",
    ),
    "receive_batch_files": "sqs.json",
    **dict.fromkeys(
        (
            "collect_garbage",
            "collect_orphans",
            "create_compaction_jobs",
            "find_partitions_to_split",
            "report_table_metrics",
            "take_state_snapshots",
        ),
        "sqs-fifo.json",
    ),
    "handle_websocket": "websocket.json",
}
# Import, then the first event, which opens the instance. In AWS that is for the most part making
# clients.
_PROGRAM = """
import gc, importlib, json, sys, time
from types import SimpleNamespace
handler = importlib.import_module(f"lambdas.{sys.argv[1]}.handler").handler
imported = time.process_time()
import boto3
for service in ("sts", "s3", "sqs", "dynamodb"):
    boto3.client(service, region_name="eu-west-2")
context = SimpleNamespace(
    function_name="f", memory_limit_in_mb=128, aws_request_id="r",
    invoked_function_arn="arn:aws:lambda:eu-west-2:123456789012:function:f",
)
handler(json.loads(sys.argv[2]), context)
print(json.dumps({
    "loaded": list(sys.modules), "cpu": time.process_time(), "import": imported,
    "objects until collection": gc.get_threshold()[0],
}))
"""


def run_function(name: str, where: Path, event: str | None = None) -> list[str]:
    """What the function says of an event (its own kind, if none is given), line by line.

    The last line is JSON: modules loaded, processor seconds in all and until it was imported.
    """
    settings = {
        "PYTHONPATH": python_path(ROOT / "core", ROOT),
        "PATH": os.environ["PATH"],
        "SLEEPER_INSTANCE": str(where),
        "SLEEPER_OPERATION": QueueName.GARBAGE_COLLECTION.value,
        "SLEEPER_TASK_KIND": "ingest",
        "SLEEPER_BULK_IMPORT_PLATFORM": "emr_serverless",
        "POWERTOOLS_SERVICE_NAME": name,
    }
    event_text = event or (EVENTS / EVENT_OF[name]).read_text()
    command = [sys.executable, "-c", _PROGRAM, name, event_text]
    process = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(f"function {name}: {process.stderr}")
    return process.stdout.splitlines()


def measure_start(name: str, where: Path) -> dict[str, Any]:
    """The last line of that."""
    measurements: dict[str, Any] = json.loads(run_function(name, where)[-1])
    return measurements
