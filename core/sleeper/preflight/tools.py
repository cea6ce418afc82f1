"""Checks of this machine, which builds the images of tasks and functions if none are published."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from sleeper.preflight.finding import Finding, error, passed, warning
from sleeper.properties.declaration import INSTANCE_PROPERTIES
from sleeper.properties.deployment import IMAGES_REGISTRY
from sleeper.properties.values import InstanceProperties

_SECONDS_MAX = 30
_VARIABLE = "CDK_DOCKER"
_ARM_MACHINES = {"aarch64", "arm64"}
_EMULATORS = {"ARM64": "qemu-aarch64", "X86_64": "qemu-x86_64"}
_FORMATS = Path("/proc/sys/fs/binfmt_misc")


def check_tools(properties: InstanceProperties, formats: Path = _FORMATS) -> Iterator[Finding]:
    """Yields what keeps this machine from building images.

    `formats` is the folder in which Linux lists the formats of programs that it can run.
    """
    registry = properties.get(IMAGES_REGISTRY)
    if registry is not None:
        yield passed("images", f"published in {registry}: none is built")
        return
    tool = os.environ.get(_VARIABLE) or "docker"
    path = shutil.which(tool)
    if path is None:
        yield error(
            "images", f"there is no {tool} (expected Docker, or {_VARIABLE}=podman for Podman)"
        )
        return
    if fault := _find_fault([path, "info"]):
        yield error("images", f"{tool} does not answer: {fault}")
        return
    yield passed("images", f"{tool} answers")
    own = "ARM64" if platform.machine().lower() in _ARM_MACHINES else "X86_64"
    # The virtual machines of other systems bring their own emulation.
    for other in sorted(_architectures(properties) - {own}) if formats.is_dir() else ():
        if not (formats / _EMULATORS[other]).exists():
            yield warning(
                "images",
                f"this machine is {own}, and images are for {other}: install QEMU's emulation, or "
                f"set the properties …cpu.architecture to {own}",
            )


def _architectures(properties: InstanceProperties) -> set[str]:
    declared = [each for each in INSTANCE_PROPERTIES if each.name.endswith("cpu.architecture")]
    return {str(properties.get(each)) for each in declared}


def _find_fault(command: Sequence[str]) -> str | None:
    """Returns the last line of the errors of a command that fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    if result.returncode == 0:
        return None
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {result.returncode}"
