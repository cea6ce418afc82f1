"""Root filesystems of images, and processes in them, without a container engine.

A root has the system folders of this machine and this Python instead of those of the base image,
the pinned packages as this machine has them, and what the Dockerfile copies. It is read-only, but
for `/tmp` and folders that a test names. Processes run as a user without rights. The Python and
the processor are not those of the image: `tests/unit/test_container_wheels.py` checks the pins for
those.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from tests.infra.dockerfile import Stage

NOBODY = 65534
PACKAGES = "/packages"
PYTHON = (os.path.realpath(sys.executable), "-S")
"""Without the packages of this machine."""
_SYSTEM = ("bin", "etc", "lib", "lib64", "proc", "usr")
_DEVICES = ("null", "random", "urandom", "zero")


@dataclass(frozen=True)
class Root:
    """A folder that a process sees as its root."""

    folder: Path
    work_folder: str

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        volumes: Mapping[str, Path] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command. `volumes` are folders of this machine, by their paths in the root."""
        script = "\n".join(["set -e", *self._mounts(volumes or {}), self._start(command)])
        isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        variables = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": PACKAGES,
            "HOME": "/nonexistent",
        }
        return subprocess.run(
            isolated,
            env={**variables, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def _mounts(self, volumes: Mapping[str, Path]) -> list[str]:
        root = self.folder
        bound = {root / name: Path("/", name) for name in _SYSTEM}
        bound |= {
            root / prefix.lstrip("/"): Path(prefix) for prefix in {sys.base_prefix, sys.prefix}
        }
        # The mounts below may be in /tmp.
        lines = [
            f"mount --bind {_quote(root)} {_quote(root)}",
            f"mkdir -p {_quote(root / 'tmp')}",
            f"mount -t tmpfs -o mode=1777 tmpfs {_quote(root / 'tmp')}",
        ]
        for target, source in bound.items():
            if source.is_dir() and not source.is_symlink():
                lines.append(f"mkdir -p {_quote(target)}")
                lines.append(f"mount --rbind {_quote(source)} {_quote(target)}")
            elif source.is_symlink() and not target.is_symlink():
                lines.append(f"ln -s {_quote(os.readlink(source))} {_quote(target)}")
        for name in _DEVICES:
            lines.append(f"mkdir -p {_quote(root / 'dev')}; touch {_quote(root / 'dev' / name)}")
            lines.append(f"mount --bind /dev/{name} {_quote(root / 'dev' / name)}")
        lines.append(f"ln -sfn /proc/self/fd {_quote(root / 'dev' / 'fd')}")
        for path, source in volumes.items():
            target = _quote(root / path.lstrip("/"))
            lines.append(f"mkdir -p {target}; mount --bind {_quote(source)} {target}")
        # Mounts below keep their own mode, and the user has no rights there.
        return [*lines, f"mount -o remount,bind,ro {_quote(root)}"]

    def _start(self, command: Sequence[str]) -> str:
        inside = f"cd {shlex.quote(self.work_folder)} && exec {shlex.join(command)}"
        user = f"--userspec={NOBODY}:{NOBODY} --groups="
        return f"exec chroot {user} {_quote(self.folder)} /bin/sh -c {shlex.quote(inside)}"


def make_root(
    folder: Path, stage: Stage, context: Path, requirements: Path, provided: Sequence[str] = ()
) -> Root:
    """Returns the root of an image. `provided` are packages of the base image."""
    folder.mkdir()
    folder.chmod(0o755)
    stage.apply(folder, context)
    _open_folders(folder, stage)
    _install([*_read_pins(requirements), *provided], folder / PACKAGES.lstrip("/"))
    return Root(folder, stage.work_folder)


def why_impossible() -> str | None:
    """Returns why this machine cannot run processes in another root; None if it can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "it takes root and unshare to run a process in another root filesystem"
    tried = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "mount", "--bind", "/usr", "/usr"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tried.stderr.strip() or None


def _open_folders(root: Path, stage: Stage) -> None:
    """Makes the parents of targets as an engine does, readable for all."""
    for path in {parent for copy in stage.copies() for parent in copy.target.parents}:
        (root / path.relative_to("/")).chmod(0o755)


def _install(names: Sequence[str], folder: Path) -> None:
    """Links the packages alone, so that an import of another one fails."""
    folder.mkdir()
    for name in names:
        package = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(str(package.locate_file(top)))


def _read_pins(requirements: Path) -> Iterator[str]:
    pins = re.findall(r"^[a-z0-9].*?==[^\\\n]*", requirements.read_text(), re.MULTILINE)
    for requirement in (Requirement(pin.strip()) for pin in pins):
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement.name


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
