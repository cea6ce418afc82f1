"""File systems that are shared between machines, which do not support a local instance."""

from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_TYPES = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4"),
    *("ocfs2", "smb3", "smbfs", "virtiofs", "fuse.glusterfs", "fuse.gcsfuse", "fuse.mount-s3"),
    *("fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
}


def describe_network_folder(folder: Path) -> str | None:
    """Returns a warning if the folder is on a network file system, by the type of its mount."""
    found = _find_type(folder.resolve())
    if found not in _NETWORK_TYPES:
        return None
    return (
        f"{folder} is on a network file system ({found}): locks and shared memory of SQLite do not "
        "work between machines, so use the instance on one machine only, or on a local disk"
    )


def _find_type(folder: Path) -> str | None:
    """Returns the type of the file system, None if it is unknown."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    places = {str(place) for place in (folder, *folder.parents)}
    found: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        place = _unescape(before.split()[4])
        # A later mount on the same folder hides the earlier one.
        if place in places and (found is None or len(place) >= found[0]):
            found = len(place), after.split()[0]
    return found[1] if found else None


def _unescape(text: str) -> str:
    for character in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
