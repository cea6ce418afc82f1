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
    kind = _find_type(folder.resolve())
    if kind not in _NETWORK_TYPES:
        return None
    return (
        f"{folder} is on a network file system ({kind}): locks and shared memory of SQLite do not "
        "work between machines, so use the instance on one machine only, or on a local disk"
    )


def _find_type(folder: Path) -> str | None:
    """Returns the type of the file system, None if it is unknown."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    folders = {str(mount) for mount in (folder, *folder.parents)}
    kind: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = _unescape(before.split()[4])
        # A later mount on the same folder hides the earlier one.
        if mount in folders and (kind is None or len(mount) >= kind[0]):
            kind = len(mount), after.split()[0]
    return kind[1] if kind else None


def _unescape(text: str) -> str:
    for character in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
