"""The search for a value in every object of a folder or bucket, in the forms that it may have."""

import base64
import gzip
import io
from collections.abc import Iterable

import pyarrow.parquet as pq
import zstandard


def find_remnants(objects: Iterable[tuple[str, bytes]], value: str | int) -> list[str]:
    """Returns the names of objects that hold the value.

    The search reads Parquet, decompresses gzip and Zstandard, and looks at all other bytes, so
    also at unused pages of databases. Text is looked for as it is and in base64, as messages have
    it, and a number as text and as eight bytes.
    """
    return [name for name, content in objects if any(map(_finder(value), _forms(content)))]


def _finder(value: str | int) -> "_Finder":
    text = str(value).encode()
    forms = [text]
    if isinstance(value, str):
        forms.append(base64.b64encode(text))
    else:
        forms += [value.to_bytes(8, order, signed=True) for order in ("little", "big")]
    return _Finder(forms)


class _Finder:
    def __init__(self, forms: list[bytes]) -> None:
        self._forms = forms

    def __call__(self, content: bytes) -> bool:
        return any(form in content for form in self._forms)


def _forms(content: bytes) -> Iterable[bytes]:
    yield content
    if content.startswith(b"PAR1"):
        try:
            table = pq.read_table(io.BytesIO(content))
        except OSError:
            return  # a file of a killed process
        yield "\n".join(str(row) for row in table.to_pylist()).encode()
        yield str(table.schema).encode()
    elif content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
    elif content.startswith(b"\x28\xb5\x2f\xfd"):
        yield zstandard.ZstdDecompressor().stream_reader(content).read()
