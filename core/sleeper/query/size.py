"""How much of a table a query may be about."""

from collections.abc import Iterable

from sleeper.errors import InvalidRequestError
from sleeper.files.data_file import DataFile
from sleeper.properties.engine import QUERY_BYTES_MAX


def check_size(bytes_of_files: int, bytes_max: int) -> None:
    """InvalidRequestError if a query's files are larger than allowed; a maximum of 0 is none."""
    if 0 < bytes_max < bytes_of_files:
        raise InvalidRequestError(
            f"the query reads of data files of {bytes_of_files:,} bytes: {QUERY_BYTES_MAX.name} "
            f"allows {bytes_max:,}; ask for fewer keys"
        )


def total_bytes(files: Iterable[DataFile]) -> int:
    """Of all files together, each once."""
    return sum({file.path: file.bytes for file in files}.values())
