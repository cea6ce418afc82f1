"""Runs ministack with extensions for the tests: `ministack_program.py CLOCK`.

CLOCK is a file that holds by how many seconds the clock is ahead, as a double. Run by
ministack's own Python, which knows nothing of this project. FUNCTIONS_PYTHONPATH is where the
functions that it runs find libraries, and ministack itself does not.

Each process of a function unpacks and compiles the zip, which takes it a second. Here a zip is
unpacked once, and the processes of all functions share what is compiled.

Where it checks policies (AUTH), some is put right: requests count as if they came by TLS, which
policies of buckets and queues want and nobody speaks here; batches for queues are judged as their
messages are; tasks are run from a task definition, and in a cluster, which is a condition's key;
they are described and stopped by themselves, not as their cluster. Event source mappings are read
and changed one by one, rules have the name of no default bus, and actions of an alarm are its own.
RECORDED_CALLS is a file for what roles do (`ministack_recorder`).

`ministack_nested_stacks` makes nested stacks end as CloudFormation ends them.
"""

import hashlib
import importlib
import json
import mmap
import os
import runpy
import struct
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

_real_time = time.time
with open(sys.argv[1], "rb") as file:
    _ahead = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)


def _moved_time() -> float:
    return _real_time() + struct.unpack("d", _ahead[:8])[0]


def _unpack_once() -> None:
    unpack = zipfile.ZipFile.extractall
    lock = threading.Lock()

    def link(archive: zipfile.ZipFile, path: Any = None, *more: Any) -> None:
        if archive.filename is None or not archive.filename.endswith("code.zip"):
            unpack(archive, path, *more)
            return
        digest = hashlib.sha256(Path(archive.filename).read_bytes()).hexdigest()
        shared = Path(tempfile.gettempdir(), f"unpacked-{digest}")
        with lock:
            if not shared.exists():
                unpack(archive, shared)
        for item in shared.iterdir():
            Path(path, item.name).symlink_to(item)

    zipfile.ZipFile.extractall = link  # type: ignore[method-assign]


def _take_all_for_secure() -> None:
    evaluator: Any = importlib.import_module("ministack.core.iam_evaluator")
    pin = evaluator.pin_request_origin
    evaluator.pin_request_origin = lambda source_ip, _: pin(source_ip, True)


def _judge_batches_as_messages() -> None:
    original = _actions.extract_iam_action

    def action(service: str, *request: Any) -> str | None:
        result: str | None = original(service, *request)
        return result.removesuffix("Batch") if result and service == "sqs" else result

    _actions.extract_iam_action = action


def _judge_tasks_by_definition_and_cluster() -> None:
    known_resource, known_keys = _actions.extract_resource_arn, _actions.request_tag_context

    def resource(
        service: str, method: str, path: str, headers: Any, body: bytes, *more: Any
    ) -> str:
        if service == "ecs":
            asked, target = json.loads(body or b"{}"), headers.get("x-amz-target", "")
            if target.endswith(".RunTask"):
                return _arn("ecs", f"task-definition/{asked['taskDefinition']}:1")
            if target.endswith((".DescribeTasks", ".StopTask")):
                task: str = asked["task"] if "task" in asked else asked["tasks"][0]
                cluster = asked.get("cluster", "default").rpartition("/")[2]
                return task if task.startswith("arn:") else _arn("ecs", f"task/{cluster}/{task}")
        result: str = known_resource(service, method, path, headers, body, *more)
        return result

    def keys(service: str, action: str, body: bytes, params: Any) -> dict[str, Any]:
        result: dict[str, Any] = known_keys(service, action, body, params)
        if service == "ecs":
            name = json.loads(body or b"{}").get("cluster", "default").rpartition("/")[2]
            result["ecs:cluster"] = _arn("ecs", f"cluster/{name}")
        return result

    _actions.extract_resource_arn, _actions.request_tag_context = resource, keys


def _judge_sources_rules_and_alarms_by_name() -> None:
    known_action, known_resource = _actions.extract_iam_action, _actions.extract_resource_arn
    of_source = {"GET": "lambda:GetEventSourceMapping", "PUT": "lambda:UpdateEventSourceMapping"}

    def action(service: str, method: str, path: str, *rest: Any) -> Any:
        # A path that ends with an id.
        is_source = service == "lambda" and "/event-source-mappings/" in path.rstrip("/")
        if is_source and method in of_source:
            return of_source[method]
        return known_action(service, method, path, *rest)

    def resource(
        service: str, method: str, path: str, headers: Any, body: bytes, *rest: Any
    ) -> Any:
        arn = known_resource(service, method, path, headers, body, *rest)
        if service == "monitoring" and body.startswith(b"{"):
            names = json.loads(body).get("AlarmNames", ())
            return _arn("cloudwatch", f"alarm:{names[0]}") if names else arn
        return arn.replace(":rule/default/", ":rule/") if service == "events" else arn

    _actions.extract_iam_action, _actions.extract_resource_arn = action, resource


def _leave_images_to_tests() -> None:
    """Gives functions from images no messages, even if their event source is enabled."""
    functions: Any = importlib.import_module("ministack.services.lambda_svc")
    known = functions._sqs_esm_concurrency

    def concurrency(source: Any, function: Any, config: Any, queue: Any) -> int:
        if function["config"].get("PackageType") == "Image":
            return 0
        most: int = known(source, function, config, queue)
        return most

    functions._sqs_esm_concurrency = concurrency


def _arn(service: str, resource: str) -> str:
    folder: Any = importlib.import_module("ministack.core.responses")
    return f"arn:aws:{service}:{folder.get_region()}:{folder.get_account_id()}:{resource}"


def _record_calls(file: Path) -> None:
    recorder: Any = importlib.import_module("ministack_recorder")
    recorder.name_written_attributes()
    recorder.record_calls(file)


time.time = _moved_time
# Its children inherit it; this process has its path already.
if "FUNCTIONS_PYTHONPATH" in os.environ:
    os.environ["PYTHONPATH"] = os.environ["FUNCTIONS_PYTHONPATH"]
_actions: Any = importlib.import_module("ministack.core.iam_actions")
_unpack_once()
_take_all_for_secure()
_judge_batches_as_messages()
_judge_tasks_by_definition_and_cluster()
_judge_sources_rules_and_alarms_by_name()
_leave_images_to_tests()
sys.path.append(str(Path(__file__).parent))
importlib.import_module("ministack_nested_stacks").install()
if "RECORDED_CALLS" in os.environ:
    _record_calls(Path(os.environ["RECORDED_CALLS"]))
sys.path.pop()
sys.argv = ["ministack"]
runpy.run_module("ministack", run_name="__main__")
