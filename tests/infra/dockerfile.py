"""Dockerfiles as tests read them: stages of instructions, with arguments and variables replaced."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# The variables that base images set.
_BASES = {"lambda/python": {"LAMBDA_TASK_ROOT": "/var/task"}}
_WORK_FOLDERS = {"lambda/python": "/var/task"}


@dataclass(frozen=True)
class Instruction:
    """`name` is in capitals."""

    name: str
    text: str


@dataclass(frozen=True)
class Copy:
    """Copies into the folder of an image, with a path below its root, from the context."""

    sources: tuple[str, ...]
    target: PurePosixPath
    is_folder: bool

    def into(self, root: Path, context: Path) -> None:
        """Copies as Docker does: of a folder its contents, of a file the file or into a folder."""
        target = root / self.target.relative_to("/")
        for name in self.sources:
            source = context / name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                file = target / source.name if self.is_folder else target
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, file)


@dataclass
class Stage:
    """A stage of a build: what it begins from, and what it does then."""

    base: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def user(self) -> str | None:
        users = [each.text for each in self.instructions if each.name == "USER"]
        return users[-1] if users else None

    @property
    def work_folder(self) -> str:
        folders = [each.text for each in self.instructions if each.name == "WORKDIR"]
        default = next((v for k, v in _WORK_FOLDERS.items() if k in self.base), "/")
        return folders[-1] if folders else default

    def apply(self, root: Path, context: Path) -> None:
        """Copies, and changes modes, as the instructions say. Other commands are not run."""
        for copy in self.copies():
            copy.into(root, context)
        for each in self.instructions:
            words = shlex.split(replace_variables(each.text, self._variables))
            if each.name == "RUN" and words[0] == "chmod":
                paths = [root / word.lstrip("/") for word in words if word.startswith("/")]
                options = [word for word in words[1:] if not word.startswith("/")]
                subprocess.run(["chmod", *options, *paths], check=True)

    @property
    def _variables(self) -> Mapping[str, str]:
        return next((v for k, v in _BASES.items() if k in self.base), {})

    def copies(self) -> Iterator[Copy]:
        """Yields those from the context, not from other stages."""
        for each in self.instructions:
            words = shlex.split(replace_variables(each.text, self._variables))
            if each.name == "COPY" and not any(w.startswith("--from=") for w in words):
                *sources, target = (word for word in words if not word.startswith("--"))
                full = PurePosixPath(self.work_folder) / target
                yield Copy(tuple(sources), full, target.endswith("/"))


def read_stages(file: Path) -> list[Stage]:
    """Returns the stages of a Dockerfile, the one of the image last."""
    lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, text = line.partition(" ")
        if name == "FROM":
            stages.append(Stage(replace_variables(text, arguments).split()[0]))
        elif not stages:
            assert name == "ARG", line
            argument, _, default = text.partition("=")
            arguments[argument] = default
        else:
            stages[-1].instructions.append(Instruction(name, text))
    return stages


def replace_variables(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], text)
