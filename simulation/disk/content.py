"""The durable content of a file: what a power failure leaves of it.

A *sector* is the unit of a write that a power failure does not tear. The sectors of a file that
were written since its last synchronisation survive in any mixture of their versions since then, and
its size is any that it had.
"""

from random import Random

SECTOR_BYTES = 512
# Enough to mix, and a limit for a file that nobody synchronises.
_VERSIONS_MAX = 4


class Content:
    """The versions of a file's sectors since its last synchronisation."""

    def __init__(self, synced_bytes: int = 0) -> None:
        self.synced_bytes = synced_bytes
        self._sizes: list[int] = []
        self._older: dict[int, list[bytes]] = {}

    def synced(self, size: int) -> None:
        """Records that the file was synchronised at this size."""
        self.synced_bytes = size
        self._sizes.clear()
        self._older.clear()

    def changes(self, offset: int, older: bytes, size: int) -> None:
        """Records the content at an offset, in whole sectors, before it changes.

        `size` is that of the file before the change.
        """
        if size != (self._sizes[-1] if self._sizes else self.synced_bytes):
            self._sizes = [*self._sizes[-_VERSIONS_MAX:], size]
        for start in range(0, len(older), SECTOR_BYTES):
            versions = self._older.setdefault((offset + start) // SECTOR_BYTES, [])
            if len(versions) < _VERSIONS_MAX:
                versions.append(older[start : start + SECTOR_BYTES])

    def surviving(self, current: bytes, random: Random) -> bytes:
        """Returns what a power failure leaves of the current content."""
        fate = random.random()
        if fate < 0.2:
            return current
        if fate < 0.4:
            return self._synced_content(current)
        kept = random.random()
        size = self._surviving_size(len(current), random)
        sectors = (
            self._surviving_sector(current, sector, random.random() < kept, random)
            for sector in range(-(-size // SECTOR_BYTES))
        )
        return b"".join(sectors)[:size]

    def _synced_content(self, current: bytes) -> bytes:
        """Returns the content at the last synchronisation."""
        content = bytearray(current[: self.synced_bytes].ljust(self.synced_bytes, b"\0"))
        for sector, versions in self._older.items():
            start = sector * SECTOR_BYTES
            content[start : start + len(versions[0])] = versions[0]
        return bytes(content[: self.synced_bytes])

    def _surviving_size(self, size: int, random: Random) -> int:
        sizes = [size, self.synced_bytes, *self._sizes]
        if size > self.synced_bytes:
            sizes.append(random.randint(self.synced_bytes, size))
        return random.choice(sizes)

    def _surviving_sector(
        self, current: bytes, sector: int, is_kept: bool, random: Random
    ) -> bytes:
        start = sector * SECTOR_BYTES
        newest = current[start : start + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
        older = self._older.get(sector)
        if older:
            # Of a truncation the size survives or not, and with the former size the content.
            is_kept = is_kept and start < len(current)
            content = newest if is_kept else random.choice(older)
        elif start + SECTOR_BYTES <= self.synced_bytes or is_kept:
            content = newest
        else:
            durable = max(self.synced_bytes - start, 0)
            content = newest[:durable]
            if random.random() < 0.3:
                content += random.randbytes(SECTOR_BYTES - durable)
        return content.ljust(SECTOR_BYTES, b"\0")
