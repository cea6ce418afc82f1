"""`sleeper preflight` prints what a deployment would fail for."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers as Docker does while it runs."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\ntest "$1" = info\n')
    program.chmod(0o755)
    monkeypatch.setenv("CDK_DOCKER", str(program))
    return program


def test_a_folder_without_faults_passes(sleeper: Sleeper, docker: Path) -> None:
    result = sleeper("preflight", "--id", "here", "--offline", "--output", "json")
    assert result.status == 0
    levels = {row["check"]: row["level"] for row in result.rows}
    assert {levels[name] for name in ("task sizes", "network", "tables")} == {"ok"}


def test_faults_come_first_and_fail(sleeper: Sleeper, tmp_path: Path, docker: Path) -> None:
    docker.write_text("#!/bin/sh\necho cannot connect >&2\nexit 1\n")
    file = tmp_path / "instance.properties"
    file.write_text("sleeper.id=here\nsleeper.ingest.task.cpu=3000\n")
    result = sleeper("preflight", str(file), "--offline", "--output", "json")
    assert result.status == 1
    assert [(row["level"], row["check"]) for row in result.rows[:2]] == [
        ("error", "task sizes"),
        ("error", "images"),
    ]
    assert result.rows[1]["message"] == f"{docker} does not answer: cannot connect"


def test_a_missing_program_is_named(sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DOCKER", "no-such-program")
    result = sleeper("preflight", "--id", "here", "--offline")
    assert result.status == 1
    assert "there is no no-such-program (expected Docker" in result.stdout
    published = sleeper("preflight", "--id", "here", "--offline", "--published")
    assert (published.status, "no-such-program" in published.stdout) == (0, False)


def test_published_images_need_no_program(
    sleeper: Sleeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_DOCKER", "no-such-program")
    file = tmp_path / "instance.properties"
    registry = "123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper"
    file.write_text(f"sleeper.id=here\nsleeper.images.registry={registry}\n")
    result = sleeper("preflight", str(file), "--offline", "--output", "json")
    assert result.status == 0
    (images,) = (row for row in result.rows if row["check"] == "images")
    assert images["message"] == f"published in {registry}: none is built"


@pytest.mark.parametrize("registry", ["ghcr.io/acme/sleeper", "docker.io/acme", "acme"])
def test_images_of_other_registries_are_refused(
    sleeper: Sleeper, tmp_path: Path, registry: str
) -> None:
    file = tmp_path / "instance.properties"
    file.write_text(f"sleeper.id=here\nsleeper.images.registry={registry}\n")
    result = sleeper("preflight", str(file), "--offline")
    assert result.status != 0
    assert "Lambda and EMR Serverless accept images from ECR only" in result.stderr
