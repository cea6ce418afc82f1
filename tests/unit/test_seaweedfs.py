"""The S3 server of the tests."""

import re
from pathlib import Path

import obstore

from sleeper.storage.bucket import open_bucket
from tests.servers.aws_instance import s3_client
from tests.servers.seaweedfs import seaweedfs


def test_no_volume_grows_once_the_server_is_ready(tmp_path: Path) -> None:
    """While volumes grow, puts fail."""
    log = tmp_path / "weed.log"

    def measure_growth() -> int:
        return len(re.findall(r"volume grow ", log.read_text(errors="replace")))

    with seaweedfs(tmp_path, ("one", "two")) as server:
        previous = measure_growth()
        for name in ("one", "two"):
            bucket = open_bucket(server.bucket(name))
            for number in range(3):
                obstore.put(bucket, f"o{number}", bytes(4_000_000), use_multipart=False)
        assert measure_growth() == previous > 0


def test_a_bucket_takes_one_volume(tmp_path: Path) -> None:
    """A run's tests make more than a hundred buckets, and the server's volumes are limited."""
    with seaweedfs(tmp_path) as server:
        s3 = s3_client(server)
        for number in range(5):
            s3.create_bucket(Bucket=f"bucket-{number}")
            obstore.put(open_bucket(server.bucket(f"bucket-{number}")), "o", b"x")
    assert len(list((tmp_path / "data").glob("bucket-*.dat"))) == 5
