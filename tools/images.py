"""Builds the container images, and publishes them in a registry: `python -m tools.images`.

Docker builds them, or the program that CDK_DOCKER names, as for `cdk deploy`: `podman` has another
syntax for two commands. Each Dockerfile is built once per processor, because Lambda refuses an
image for several, and a list of both has the tag without a processor. If cosign is installed, it
signs what was pushed, with the key in COSIGN_KEY or the identity of the user.

In ECR, missing repositories are created (`tools/image_repositories.py`).
"""

import argparse
import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from sleeper import __version__
from sleeper.bulk_import.images import ON_EKS, ON_EMR, build_arguments
from sleeper.properties.deployment import EMR_RELEASE
from sleeper.properties.images import (
    PLATFORMS,
    NamedImage,
    Registry,
    list_tag,
    repository_name,
)
from stacks.constructs.image import CONTEXT, ROOT
from tools.image_repositories import make_repositories

_LOCAL = "sleeper"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Lambda refuses the lists of images that attestations make.
_NO_ATTESTATIONS = {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True, slots=True)
class Engine:
    """Docker or Podman."""

    path: str

    @property
    def is_podman(self) -> bool:
        return Path(self.path).name == "podman"

    def build(self, image: NamedImage, reference: str, context: Path) -> None:
        arguments = [f"--build-arg={name}={value}" for name, value in image.arguments.items()]
        file = context / "containers" / image.name / "Dockerfile"
        options = [
            f"--platform={PLATFORMS[image.processor]}",
            f"--file={file}",
            f"--tag={reference}",
            *arguments,
        ]
        _run([self.path, "build", *options, str(context)])

    def size_bytes(self, reference: str) -> int:
        return int(_read([self.path, "image", "inspect", "--format", "{{.Size}}", reference]))

    def log_in(self, host: str, user: str, password: str) -> None:
        command = [self.path, "login", "--username", user, "--password-stdin", host]
        subprocess.run(command, input=password, text=True, check=True)

    def push(self, reference: str) -> str:
        """Returns the digest of the pushed image."""
        return self._push(["push"], reference)

    def push_list(self, reference: str, members: Sequence[str]) -> str:
        """Pushes a list of images of several platforms, and returns its digest."""
        _run([self.path, "manifest", "create", "--amend", reference, *members])
        # Docker would add to the list at the next time, Podman has no such option.
        options = ["--all"] if self.is_podman else ["--purge"]
        return self._push(["manifest", "push", *options], reference)

    def _push(self, command: Sequence[str], reference: str) -> str:
        if not self.is_podman:
            return _find_digest(_read([self.path, *command, reference]), reference)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "digest"
            _run([self.path, *command, f"--digestfile={file}", reference])
            return _find_digest(file.read_text(), reference)


def main(arguments: Sequence[str] | None = None) -> None:
    """Builds, and with a registry pushes and signs. Prints each image and its size."""
    options = _parse(arguments)
    engine = _find_engine()
    builds = list_builds(options.emr_release, options.processors)
    registry = Registry.parse(options.registry or "")
    if registry is not None:
        client = boto3.client("ecr", region_name=registry.region)
        repositories = sorted({registry.repository(images[0].name) for images in builds})
        for created in make_repositories(client, registry, repositories):
            print(f"created repository {created}")
        _log_in(client, engine, options.registry.partition("/")[0])
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder) / "context"
        stage_context(context)
        pushed = [each for images in builds for each in _make(engine, images, context, options)]
    if options.registry:
        _sign(pushed)


def list_builds(emr_release: str, processors: Sequence[str]) -> list[list[NamedImage]]:
    """Returns all images of a release. Those of one list differ in the processor alone."""
    bases = [build_arguments(base, emr_release) for base in (ON_EMR, ON_EKS)]
    builds = [("worker", {}), ("function", {}), *(("bulk_import", each) for each in bases)]
    return [
        [NamedImage(name, processor, arguments) for processor in processors]
        for name, arguments in builds
    ]


def stage_context(folder: Path) -> None:
    """Copies what Dockerfiles can copy: engines differ in how they leave out other files."""
    for name in CONTEXT:
        shutil.copytree(ROOT / name, folder / name, ignore=_LEFT_OUT)


def _make(
    engine: Engine, images: Sequence[NamedImage], context: Path, options: argparse.Namespace
) -> list[str]:
    """Builds and pushes images and their list, and returns what was pushed, by digest."""
    repository = f"{options.registry or _LOCAL}/{repository_name(images[0].name)}"
    pushed, members = [], []
    for image in images:
        reference = f"{repository}:{image.tag(options.tag)}"
        engine.build(image, reference, context)
        print(f"{reference}: {engine.size_bytes(reference) / 1e6:,.0f} MB")
        members.append(reference)
        if options.registry:
            pushed.append(f"{repository}@{engine.push(reference)}")
    if options.registry:
        reference = f"{repository}:{list_tag(options.tag, images[0].arguments)}"
        pushed.append(f"{repository}@{engine.push_list(reference, members)}")
        print(f"{reference}: {', '.join(options.processors)}")
    return pushed


def _sign(references: Sequence[str]) -> None:
    cosign = shutil.which("cosign")
    if cosign is None:
        print("not signed: cosign is not installed")
        return
    key = os.environ.get("COSIGN_KEY")
    for reference in references:
        _run([cosign, "sign", "--yes", *([f"--key={key}"] if key else []), reference])
    print(f"signed {len(references)} images and lists with cosign")


def _log_in(client: Any, engine: Engine, host: str) -> None:
    (granted,) = client.get_authorization_token()["authorizationData"]
    user, _, password = base64.b64decode(granted["authorizationToken"]).decode().partition(":")
    engine.log_in(host, user, password)


def _find_engine() -> Engine:
    name = os.environ.get("CDK_DOCKER") or "docker"
    path = shutil.which(name)
    if path is None:
        sys.exit(f"there is no {name} (expected Docker, or CDK_DOCKER=podman for Podman)")
    return Engine(path)


def _find_digest(output: str, reference: str) -> str:
    digests = _DIGEST.findall(output)
    if not digests:
        sys.exit(f"no digest of {reference} in: {output.strip()[-200:]}")
    return str(digests[-1])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, env={**os.environ, **_NO_ATTESTATIONS})


def _read(command: Sequence[str]) -> str:
    return subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **_NO_ATTESTATIONS},
    ).stdout


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--registry", help="where to push, with a prefix: HOST/PREFIX; default: only build"
    )
    parser.add_argument("--tag", default=__version__, help="default: the version")
    parser.add_argument(
        "--processors",
        type=lambda text: text.split(","),
        default=list(PLATFORMS),
        help=f"a part of {','.join(PLATFORMS)}, which is the default",
    )
    parser.add_argument(
        "--emr-release",
        default=EMR_RELEASE.default,
        help="as sleeper.bulk.import.emr.release.label",
    )
    options = parser.parse_args(arguments)
    if unexpected := set(options.processors) - set(PLATFORMS):
        parser.error(
            f"processors {', '.join(sorted(unexpected))} (expected {', '.join(PLATFORMS)})"
        )
    return options


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failure:
        sys.exit(f"exit status {failure.returncode}: {shlex.join(map(str, failure.cmd))}")
