"""The zip that all functions without an image share: `lambdas/`, the core package, libraries.

It is built locally with Python alone. The context value `lambda_platform` selects the platform:
`lambda` (the default), `local` for the running Python, or `code` for the code without libraries,
which the running Python provides.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk
import jsii
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "lambdas" / "requirements.txt"
PYTHON_VERSION = "3.13"
PLATFORMS = ("lambda", "local", "code")
_WHEELS_FOR = {"ARM64": "aarch64-manylinux_2_28", "X86_64": "x86_64-manylinux_2_28"}
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "requirements.txt")


def make_code(scope: Construct, platform: str, processor: str) -> assets.Asset:
    """Returns the asset, named by a fingerprint of its contents: only changes rebuild it."""
    build = CodeBuild(platform, processor)
    asset = assets.Asset(
        scope,
        "Code",
        path=str(ROOT / "lambdas"),
        asset_hash=build.fingerprint(),
        asset_hash_type=cdk.AssetHashType.CUSTOM,
        bundling=cdk.BundlingOptions(
            image=cdk.DockerImage.from_registry("none"), local=_LocalBundling(build)
        ),
    )
    cdk.Validations.of(scope).acknowledge(
        cdk.Acknowledgment(
            id="@aws-cdk/aws-lambda:codeFromBucketObjectVersionNotSpecified",
            reason="the object's name changes with its content",
        )
    )
    return asset


@dataclass(frozen=True, slots=True)
class CodeBuild:
    """The platform and processor of the zip."""

    platform: str
    processor: str

    def fingerprint(self) -> str:
        """Returns a digest of the zip's sources."""
        digest = hashlib.sha256(f"{self.platform} {self.processor} {PYTHON_VERSION}".encode())
        if self.platform == "local":
            digest.update(sys.version.encode())
        for path in _sources():
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def into(self, folder: Path) -> None:
        """Writes the zip's contents into a folder."""
        for package in (ROOT / "core" / "sleeper", ROOT / "lambdas"):
            target = folder / package.name
            shutil.copytree(package, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
        if self.platform != "code":
            self._install_libraries(folder)

    def _install_libraries(self, folder: Path) -> None:
        command = [sys.executable, "-P", "-m", "uv", "pip", "install", "--quiet", "--no-config"]
        command += ["--only-binary", ":all:", "--target", str(folder), "-r", str(REQUIREMENTS)]
        command += ["--require-hashes"]
        if self.platform == "lambda":
            command += ["--python-version", PYTHON_VERSION]
            command += ["--python-platform", _WHEELS_FOR[self.processor]]
        subprocess.run(command, check=True, env={**os.environ, **_package_index()})
        for unused in [*folder.glob("**/tests"), *folder.glob("bin"), *folder.glob(".lock")]:
            shutil.rmtree(unused) if unused.is_dir() else unused.unlink()


@jsii.implements(cdk.ILocalBundling)
class _LocalBundling:
    def __init__(self, build: CodeBuild) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, _options: object = None, **_: object) -> bool:
        self._build.into(Path(output_dir))
        return True


def _sources() -> Iterator[Path]:
    yield REQUIREMENTS
    for package in (ROOT / "core" / "sleeper", ROOT / "lambdas"):
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _package_index() -> dict[str, str]:
    """Returns the variables that make uv use the package index of pip's configuration."""
    if "UV_DEFAULT_INDEX" in os.environ:
        return {}
    command = [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    index = os.environ.get("PIP_INDEX_URL") or printed.stdout.strip()
    return {"UV_DEFAULT_INDEX": index} if index else {}
