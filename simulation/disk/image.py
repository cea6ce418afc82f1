"""The durable image of a folder: the content and the names that survive a power failure.

A file's content is durable as it was at its last synchronisation, and a name as it was at the last
synchronisation of the folder that lists it. Anything else may survive or not. A file is identified
by its inode, so the folder must be on a file system that never uses an inode's number again, such
as tmpfs. A durable file whose name was removed is kept by a hard link outside the folder.

What wrote a file does not matter: the image compares the names at a synchronisation of a folder
with the former ones, and content beyond the size at a file's synchronisation is not durable.
"""

import os
import shutil
from pathlib import Path
from random import Random

from simulation.disk.content import Content
from simulation.disk.power_failure import Names, Survivors, find_live_folders, is_volatile


class Image:
    """The durable state of a folder. At first all of it is durable."""

    def __init__(self, folder: Path) -> None:
        if folder != folder.resolve():
            raise ValueError(f"{folder} is not a real path (expected {folder.resolve()})")
        self.folder = str(folder)
        self._prefix = self.folder + os.sep
        self._kept = Path(f"{self.folder}.durable")
        self._contents: dict[int, Content] = {}
        self._folders: dict[int, Names] = {}
        self._uses: dict[int, int] = {}
        self._make_all_durable()

    def contains(self, path: str) -> bool:
        """Returns whether an absolute path is the folder or in it."""
        return path.startswith(self._prefix) or path == self.folder

    def content(self, inode: int) -> Content:
        """Returns the versions of a file's content. Nothing of a new file is durable."""
        return self._contents.setdefault(inode, Content())

    def close(self) -> None:
        """Deletes what the image keeps outside the folder."""
        shutil.rmtree(self._kept)

    # -- synchronisation

    def sync_folder(self, path: str) -> None:
        """Makes the names of a folder durable, unless another process has deleted it meanwhile."""
        if not os.path.isdir(path):
            return
        inode = os.stat(path).st_ino
        former = self._folders.get(inode, {})
        current: Names = {}
        with os.scandir(path) as entries:
            for entry in entries:
                if not is_volatile(entry):
                    current[entry.name] = entry.inode()
                    if former.get(entry.name) != entry.inode():
                        self._keep(entry)
        self._folders[inode] = current
        for name, child in former.items():
            if current.get(name) != child:
                self._release(child)

    def _keep(self, entry: os.DirEntry[str]) -> None:
        inode = entry.inode()
        self._uses[inode] = self._uses.get(inode, 0) + 1
        if entry.is_dir():
            self._folders.setdefault(inode, {})
        elif self._uses[inode] == 1:
            os.link(entry.path, self._kept / str(inode))

    def _release(self, inode: int) -> None:
        self._uses[inode] -= 1
        if not self._uses[inode] and inode not in self._folders:
            (self._kept / str(inode)).unlink()

    def _make_all_durable(self) -> None:
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        self._contents.clear()
        self._folders.clear()
        self._uses.clear()
        for path, _, names in os.walk(self.folder):
            self.sync_folder(path)
            for name in names:
                status = os.lstat(os.path.join(path, name))
                self._contents[status.st_ino] = Content(status.st_size)

    # -- power failure

    def lose_power(self, random: Random) -> None:
        """Leaves of the folder what a power failure leaves. All of it is durable then.

        Every file is another one afterwards, so writes to files that are still open have no effect.
        """
        live, paths = find_live_folders(self.folder)
        for inode in self._uses:
            if inode not in self._folders:
                paths[inode] = str(self._kept / str(inode))
        survivors = Survivors(self._folders, live, random)
        survivors.choose(os.stat(self.folder).st_ino)
        new = Path(f"{self.folder}.new")
        survivors.write(os.stat(self.folder).st_ino, new, paths, self.content)
        for path in Path(self.folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in new.iterdir():
            path.rename(Path(self.folder) / path.name)
        new.rmdir()
        self._make_all_durable()
