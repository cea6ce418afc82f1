"""SeaweedFS, an S3 server that enforces conditional puts."""

import contextlib
import json
import subprocess
import sysconfig
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
from obstore.exceptions import BaseError

from sleeper.storage.bucket import Bucket, Credentials, open_bucket
from tests.servers.process import free_ports, running

_OTHER_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port.grpc",
    "s3.port.grpc",
)
_KEYS = Credentials("key", "secret")


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where the server is, a key that may do everything, and the process, which keeps its data."""

    endpoint: str
    credentials: Credentials = _KEYS
    region: str = "us-east-1"
    process: "subprocess.Popen[bytes] | None" = None

    def bucket(self, name: str, prefix: str = "") -> Bucket:
        """Returns a bucket of the server, which need not exist."""
        return Bucket(name, prefix, self.region, self.endpoint, self.credentials)


@contextlib.contextmanager
def seaweedfs(folder: Path, buckets: tuple[str, ...] = ()) -> Iterator[S3Server]:
    """A server with its data, its log and these buckets in a folder that exists."""
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": _KEYS.access_key_id, "secretKey": _KEYS.secret_access_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    s3, filer, *others = free_ports(2 + len(_OTHER_PORTS))
    server = S3Server(f"http://127.0.0.1:{s3}")
    command = [
        "env",
        # The first object of a bucket creates one volume, not seven.
        "WEED_MASTER_VOLUME_GROWTH_COPY_1=1",
        str(Path(sysconfig.get_path("scripts"), "weed")),
        "server",
        f"-dir={data}",
        "-s3",
        f"-s3.port={s3}",
        f"-filer.port={filer}",
        *(f"-{name}={port}" for name, port in zip(_OTHER_PORTS, others, strict=True)),
        f"-s3.config={config}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        # Each bucket of a test run takes one, until the server ends.
        "-volume.max=2000",
        # While volumes grow, under load for seconds, the server answers puts with 500. So they
        # are large enough for all that tests write; they take no space before they are filled.
        "-master.volumeSizeLimitMB=4096",
        "-master.telemetry=false",
        # These have fixed ports, which another server of these tests may have taken.
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]

    def is_ready() -> bool:
        try:
            for bucket in (*buckets, "ready"):
                # The S3 server's buckets are folders of its file system.
                _post(f"http://127.0.0.1:{filer}/buckets/{bucket}/")
                # The first object of a bucket makes volumes grow.
                probe = replace(server.bucket(bucket), prefix="probe")
                obstore.put(open_bucket(probe), "probe", b"ready")
        except (OSError, BaseError):
            return False
        return True

    with running(command, folder / "weed.log", is_ready) as process:
        yield replace(server, process=process)


def _post(url: str) -> None:
    request = urllib.request.Request(url, method="POST")
    with urllib.request.urlopen(request, timeout=5):
        pass
