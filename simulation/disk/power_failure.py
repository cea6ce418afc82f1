"""Chooses the names and the content that survive a power failure.

A *live* name is one that programs see, a *durable* name one that was synchronised. Where they
differ, either survives. A file that was renamed survives under one of its names at least, because
file systems rename atomically. SQLite's -shm files are memory, and pipes and sockets have no
content, so none of them survives.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from simulation.disk.content import Content

Names = dict[str, int]
"""The inodes of the names in a folder."""


def is_volatile(entry: os.DirEntry[str]) -> bool:
    """Returns whether a file cannot survive a power failure."""
    is_durable = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
    return entry.name.endswith("-shm") or not is_durable


def find_live_folders(folder: str) -> tuple[dict[int, Names], dict[int, str]]:
    """Returns the names in a folder and in those below it, and a path of each inode."""
    live: dict[int, Names] = {}
    paths: dict[int, str] = {os.stat(folder).st_ino: folder}
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        names = live[os.stat(path).st_ino] = {}
        with os.scandir(path) as entries:
            for entry in entries:
                if is_volatile(entry):
                    continue
                names[entry.name] = entry.inode()
                paths[entry.inode()] = entry.path
                if entry.is_dir():
                    waiting.append(entry.path)
    return live, paths


class Survivors:
    """The names that survive, of which the order of inodes must not decide."""

    def __init__(
        self, durable: Mapping[int, Names], live: Mapping[int, Names], random: Random
    ) -> None:
        self._durable = durable
        self._live = live
        self._random = random
        self._kept = random.choice((0.0, 0.5, 1.0, random.random()))
        self._names: dict[int, Names] = {}

    def choose(self, root: int) -> None:
        """Chooses the names in a folder and in those below it."""
        self._choose(root)
        live = {inode for names in self._live.values() for inode in names.values()}
        lost = self._lost_by_rename(live)
        while lost:
            folder, name, inode = lost[0]
            self._names[folder][name] = inode
            self._choose(inode)
            lost = self._lost_by_rename(live)

    def write(
        self,
        folder: int,
        target: Path,
        paths: Mapping[int, str],
        content: Callable[[int], Content],
    ) -> None:
        """Writes what survives of a folder to a new one."""
        target.mkdir()
        for name, inode in sorted(self._names[folder].items()):
            if inode in self._names:
                self.write(inode, target / name, paths, content)
            else:
                source, copy = Path(paths[inode]), target / name
                copy.write_bytes(content(inode).surviving(source.read_bytes(), self._random))
                shutil.copystat(source, copy)
        if folder in paths:
            shutil.copystat(paths[folder], target)

    def _choose(self, inode: int) -> None:
        is_folder = inode in self._durable or inode in self._live
        if not is_folder or inode in self._names:
            return
        durable, live = self._durable.get(inode, {}), self._live.get(inode, {})
        names = self._names[inode] = {}
        for name in sorted({**durable, **live}):
            chosen = live.get(name)
            if chosen != durable.get(name) and self._random.random() >= self._kept:
                chosen = durable.get(name)
            if chosen is not None:
                names[name] = chosen
                self._choose(chosen)

    def _lost_by_rename(self, live: set[int]) -> list[tuple[int, str, int]]:
        """Returns durable names of files that have another name and would lose both."""
        surviving = {inode for names in self._names.values() for inode in names.values()}
        return [
            (folder, name, inode)
            for folder in self._names
            for name, inode in sorted(self._durable.get(folder, {}).items())
            if inode in live and inode not in surviving
        ]
