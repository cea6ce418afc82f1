"""Every pin of images and functions has a wheel for both processors and the Python there.

The images install nothing else, so no compiler is needed. `containers/wheels.txt` has the names of
wheels, which the hashes of requirements do not tell.
"""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from stacks.constructs.code import PYTHON_VERSION
from tools.wheels import MACHINES, TARGETS, Target, list_tags, read_wheels

ROOT = Path(__file__).parents[2]
# Lambda's limit of an image is 10 GB, unpacked; wheels unpack to about four times their size.
PACKED_MB_MAX = 300


def pins(target: Target, machine: str) -> dict[str, set[str]]:
    """The hashes of the pins that apply there, by name and version."""
    text = (ROOT / target.requirements).read_text().replace("\\\n", "")
    there = {
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
    }
    result = {}
    for line in text.splitlines():
        pin, *hashes = line.split(" --hash=sha256:")
        if pin and pin[0] != "#":
            requirement = Requirement(pin.strip())
            if requirement.marker is None or requirement.marker.evaluate(there):
                version = str(requirement.specifier).removeprefix("==")
                name = canonicalize_name(requirement.name)
                result[f"{name}=={version}"] = {each.strip() for each in hashes}
    return result


def wheels(target: Target, machine: str) -> dict[str, list[tuple[str, int]]]:
    """The digest and the bytes of recorded wheels that fit, by name and version."""
    tags = set(list_tags(target.python, machine))
    result: dict[str, list[tuple[str, int]]] = {}
    for wheel in read_wheels():
        name, version, _, own = parse_wheel_filename(wheel.name)
        if own & tags:
            result.setdefault(f"{name}=={version}", []).append((wheel.sha256, wheel.bytes))
    return result


@pytest.mark.generated
@pytest.mark.parametrize("processor", MACHINES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_pin_has_a_wheel(target: Target, processor: str) -> None:
    fitting = wheels(target, MACHINES[processor])
    for pin, hashes in pins(target, MACHINES[processor]).items():
        assert pin in fitting, f"{pin} has no wheel: run `make requirements`"
        assert {digest for digest, _ in fitting[pin]} <= hashes


@pytest.mark.parametrize("processor", MACHINES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_wheels_are_small_enough(target: Target, processor: str) -> None:
    fitting = wheels(target, MACHINES[processor])
    sizes = [max(n for _, n in fitting[pin]) for pin in pins(target, MACHINES[processor])]
    assert sum(sizes) < PACKED_MB_MAX * 1e6


def test_the_pythons_are_those_of_the_base_images() -> None:
    bases = {
        "worker": r"^FROM public.ecr.aws/docker/library/python:([0-9.]+)-slim$",
        "function": r"^FROM public.ecr.aws/lambda/python:([0-9.]+)$",
        "bulk_import": r"dnf install -y python([0-9.]+) ",
    }
    for target in TARGETS[1:]:
        for name in target.name.split(", "):
            text = (ROOT / "containers" / name / "Dockerfile").read_text()
            assert re.findall(bases[name], text, re.MULTILINE) == [target.python]
            assert target.requirements in text
    assert TARGETS[0].python == PYTHON_VERSION


def test_images_install_wheels_only() -> None:
    for file in (ROOT / "containers").rglob("Dockerfile"):
        commands = re.findall(r"pip install .*", file.read_text())
        assert commands
        assert all("--only-binary :all: --require-hashes" in each for each in commands)
