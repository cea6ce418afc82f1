"""The zip of the functions. The tests import `stacks` when they run, since the CDK loads slowly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.synthesis import ROOT

# Unpacked, all layers together.
LAMBDA_BYTES_MAX = 250 * 1024**2
OF_IMAGES = {
    "athena_metadata",
    "athena_records",
    "drain_exports",
    "follow_exports",
    "plan_query",
    "publish_tables",
    "run_leaf_query",
    "serve_http",
    "split_partition",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the content of the zip for this Python version."""
    from stacks.constructs.code import CodeBuild

    folder = tmp_path_factory.mktemp("code")
    CodeBuild("local", "ARM64").into(folder)
    return folder


def test_every_handler_loads_from_the_zip_without_data_libraries(
    built: Path,
) -> None:
    handlers = {path.parent.name for path in (ROOT / "lambdas").glob("*/handler.py")} - OF_IMAGES
    assert {"write_properties", "define_tables", "empty_bucket"} <= handlers
    program = f"import sys; sys.path.insert(0, {str(built)!r})\n"
    program += "".join(f"import lambdas.{name}.handler\n" for name in sorted(handlers))
    program += "print(*sys.modules)"
    # Neither this environment's packages nor the repository.
    isolated = [sys.executable, "-I", "-S", "-B", "-c", program]
    process = subprocess.run(isolated, capture_output=True, text=True, check=False, cwd="/")
    assert process.returncode == 0, process.stderr
    assert {"pyarrow", "datafusion", "pandas"}.isdisjoint(process.stdout.split())


def test_the_zip_is_small_enough_for_lambda(built: Path) -> None:
    folders = os.walk(built)
    size = sum(
        (Path(folder) / name).stat().st_size for folder, _, names in folders for name in names
    )
    assert size < 0.6 * LAMBDA_BYTES_MAX
    assert not list(built.glob("**/__pycache__"))


def test_the_zip_has_another_name_for_another_processor() -> None:
    from stacks.constructs.code import CodeBuild

    names = {CodeBuild("lambda", p).fingerprint() for p in ("ARM64", "X86_64")}
    assert len(names | {CodeBuild("local", "ARM64").fingerprint()}) == 3
    assert CodeBuild("lambda", "ARM64").fingerprint() in names
