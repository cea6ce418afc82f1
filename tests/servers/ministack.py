"""ministack, an emulator of AWS, in a process and virtual environment of its own."""

import json
import os
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.servers.process import free_ports, running

ACCOUNT = "000000000000"
REGION = "us-east-1"
_PYTHON = Path(sys.prefix) / "servers" / "bin" / "python"


@dataclass(frozen=True)
class Ministack:
    """A running server. A test can advance its clock, but not set it back."""

    url: str
    _clock: Path
    process: "subprocess.Popen[bytes] | None" = None

    def environment(self, *services: str) -> dict[str, str]:
        """Returns variables that direct clients of these services (default all) to the server."""
        endpoints = {f"AWS_ENDPOINT_URL_{s.upper()}": self.url for s in services}
        return {
            **(endpoints or {"AWS_ENDPOINT_URL": self.url}),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
        }

    def client(self, service: str, url: str | None = None) -> Any:
        """Returns a client of one of its services, or of a service at another address."""
        return boto3.client(
            service,
            endpoint_url=url or self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )

    @property
    def seconds_ahead(self) -> float:
        """How far its clock is ahead."""
        return float(struct.unpack("d", self._clock.read_bytes())[0])

    def pass_seconds(self, seconds: float) -> None:
        """Moves its clock on."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", self.seconds_ahead + seconds))

    def messages(self, queue_url: str) -> list[tuple[str, str]]:
        """Returns id and body of every message in a queue, without the SQS API."""
        url = f"{self.url}/_ministack/sqs/messages?QueueUrl={queue_url}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            accounts = json.load(answer)["messages"]
        return [
            (message["MessageId"], message["Body"])
            for regions in accounts.values()
            for queues in regions.values()
            for messages in queues.values()
            for message in messages
        ]


@contextmanager
def ministack(
    folder: Path,
    libraries: Path | None = None,
    *,
    checks_policies: bool = False,
    recorded_calls: Path | None = None,
    is_restartable: bool = False,
) -> Iterator[Ministack]:
    """Starts one on a free port and ends it. What it says is in `ministack.log` in the folder.

    Functions find in `libraries` what their zip does not hold. With `checks_policies` it lets
    them, and whoever has taken on a role, do what the role's policies allow and nothing else;
    those who have no role may do everything. What roles do is appended to the file
    `recorded_calls`. One that `is_restartable` stores its state when
    SIGTERM ends it, and loads it when it is started again.
    """
    clock = folder / "ministack-clock"
    clock.write_bytes(struct.pack("d", 0.0))
    (port,) = free_ports(1)
    server = Ministack(f"http://127.0.0.1:{port}", clock)
    environment: dict[str, object] = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": folder,
        "TMPDIR": folder,
        "GATEWAY_PORT": port,
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "S3_DATA_DIR": folder / "s3",
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
    }
    if libraries is not None:
        environment["FUNCTIONS_PYTHONPATH"] = libraries
    if checks_policies:
        environment["AUTH"] = "true"
    if recorded_calls is not None:
        environment["RECORDED_CALLS"] = recorded_calls
    if is_restartable:
        environment |= {"PERSIST_STATE": "1", "STATE_DIR": folder / "state"}
    variables = [f"{name}={value}" for name, value in environment.items()]
    # -P: what stands beside the program is not what it imports.
    program = [
        str(_PYTHON),
        "-P",
        str(Path(__file__).with_name("ministack_program.py")),
        str(clock),
    ]

    def is_ready() -> bool:
        try:
            urllib.request.urlopen(f"{server.url}/_ministack/ready", timeout=2).close()
        except OSError:
            return False
        return True

    with running(
        ["env", "-i", *variables, *program], folder / "ministack.log", is_ready
    ) as process:
        yield replace(server, process=process)
