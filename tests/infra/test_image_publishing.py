"""`make images` with programs that record how they are called, and ECR as moto answers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

REGISTRY = "123456789012.dkr.ecr.eu-west-2.amazonaws.com/sleeper"
_DIGEST = "sha256:" + 64 * "a"
# Prints a digest as `docker push` and writes it as `podman push --digestfile=`.
_ENGINE = f"""#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
  *inspect*) echo 400000000;;
  login*) cat > /dev/null;;
  *push*) echo "0.2.0: digest: {_DIGEST} size: 1";;
esac
for each in "$@"; do
  case "$each" in --digestfile=*) echo {_DIGEST} > "${{each#--digestfile=}}";; esac
done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file to which docker, podman and cosign write their arguments."""
    for name in ("docker", "podman"):
        program = tmp_path / name
        program.write_text(_ENGINE)
        program.chmod(0o755)
    file = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(file))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("CDK_DOCKER", "COSIGN_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield file


def publish(*arguments: str) -> None:
    from tools.images import main

    main(arguments)


def test_without_a_registry_images_are_only_built(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("--processors", "ARM64", "--tag", "1")
    made = calls.read_text().splitlines()
    assert [line.split()[0] for line in made] == ["build", "image"] * 4
    assert "--platform=linux/arm64" in made[0]
    assert "--tag=sleeper/worker:1-arm64" in made[0]
    assert "--build-arg=PLATFORM=emr-on-eks --build-arg=RELEASE=emr-7.9.0" in made[6]
    assert "sleeper/bulk-import:1-emr-on-eks-emr-7.9.0-arm64: 400 MB" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_images_and_lists_are_pushed(
    calls: Path, engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CDK_DOCKER", engine)
    publish("--registry", REGISTRY, "--tag", "1")
    made = calls.read_text().splitlines()
    assert made[0] == f"login --username AWS --password-stdin {REGISTRY.partition('/')[0]}"
    pushed = [line.split()[-1] for line in made if line.startswith("push")]
    assert len(pushed) == 8
    assert pushed[:2] == [f"{REGISTRY}/worker:1-arm64", f"{REGISTRY}/worker:1-amd64"]
    (created, *_) = (line for line in made if line.startswith("manifest create"))
    assert created.split()[3:] == [f"{REGISTRY}/worker:1", *pushed[:2]]
    lists = [line for line in made if line.startswith("manifest push")]
    assert len(lists) == 4
    assert ("--digestfile=" in lists[0]) == (engine == "podman")
    assert "not signed: cosign is not installed" in capsys.readouterr().out


def test_cosign_signs_each_digest(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.link(tmp_path / "docker", tmp_path / "cosign")
    monkeypatch.setenv("COSIGN_KEY", "awskms:///alias/images")
    publish("--registry", "ghcr.io/acme/sleeper", "--tag", "1", "--processors", "X86_64")
    made = calls.read_text().splitlines()
    assert not any(line.startswith("login") for line in made)
    signed = [line for line in made if line.startswith("sign")]
    first = f"ghcr.io/acme/sleeper/worker@{_DIGEST}"
    assert signed[0] == f"sign --yes --key=awskms:///alias/images {first}"
    assert len(signed) == 8


def test_repositories_are_immutable_and_services_may_pull(calls: Path) -> None:
    publish("--registry", REGISTRY, "--processors", "ARM64")
    client = boto3.client("ecr", region_name="eu-west-2")
    repositories = client.describe_repositories()["repositories"]
    mutability = {each["repositoryName"]: each["imageTagMutability"] for each in repositories}
    names = ("bulk-import", "function", "worker")
    assert mutability == {f"sleeper/{name}": "IMMUTABLE" for name in names}
    policy = json.loads(client.get_repository_policy(repositoryName="sleeper/worker")["policyText"])
    conditions = {
        each["Principal"]["Service"]: each["Condition"]["StringLike"]["aws:sourceArn"]
        for each in policy["Statement"]
    }
    here = "eu-west-2:123456789012"
    assert conditions == {
        "lambda.amazonaws.com": f"arn:aws:lambda:{here}:function:*",
        "emr-serverless.amazonaws.com": f"arn:aws:emr-serverless:{here}:/applications/*",
    }
    # Another release keeps what the account changed.
    client.delete_repository_policy(repositoryName="sleeper/worker")
    publish("--registry", REGISTRY, "--processors", "ARM64")
    with pytest.raises(client.exceptions.RepositoryPolicyNotFoundException):
        client.get_repository_policy(repositoryName="sleeper/worker")


def test_an_engine_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDK_DOCKER", "no-such-program")
    with pytest.raises(SystemExit, match="there is no no-such-program"):
        publish()
