"""Text files as UTF-8, whatever their encoding.

A byte order mark names UTF-8 or UTF-16. Without one, a file is UTF-8, unless its first characters
outside ASCII cannot be: CSV is then Windows-1252, of which Latin-1 text is a part. Text before that
point is the same in both, so a file is read once.
"""

import codecs
import io
import logging
import re
from dataclasses import dataclass
from typing import IO

from sleeper.errors import InvalidRequestError
from sleeper.storage.bucket_folder import SourceFile


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The content of a file in memory, uncompressed, with its name in errors."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name


TextFile = SourceFile | MemoryFile


UTF8, WINDOWS_1252 = "utf-8", "cp1252"

logger = logging.getLogger(__name__)

_MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MARK_BYTES = 3
_BLOCK_BYTES = 1024 * 1024
# A file's encoding is chosen by so many bytes from its first one outside ASCII on.
_CHOICE_BYTES = 64 * 1024
_UTF8_CHARACTER = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)


class Utf8Stream(io.RawIOBase):
    """The content of a file as UTF-8, without a byte order mark.

    `encoding` is None to detect it; `guesses` allows Windows-1252 then. UTF-8 is not
    checked. InvalidRequestError for bytes that another encoding does not have.
    """

    def __init__(
        self, stream: IO[bytes], path: TextFile, encoding: str | None, guesses: bool
    ) -> None:
        self._stream = stream
        self._path = path
        self.encoding = encoding
        """The given or detected encoding; None while all bytes are ASCII."""
        self._guesses = guesses
        self._is_start = True
        self._has_text = False
        self._waiting = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        if encoding not in (None, UTF8):
            self._decode_as(str(encoding))

    def read(self, size: int = -1) -> bytes:
        """Returns as many bytes as requested, less only at the end."""
        if self._is_start:
            self._start()
        if not self._waiting and self._decoder is None and self.encoding is not None:
            return self._read(size)
        self._fill(size)
        if size < 0:
            size = len(self._waiting)
        content, self._waiting = self._waiting[:size], self._waiting[size:]
        return content

    def peek(self, size: int) -> bytes:
        """Returns the next bytes without taking them."""
        content = self.read(size)
        self._waiting = content + self._waiting
        return content

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()
        super().close()

    def _start(self) -> None:
        self._is_start = False
        head = self._read(_MARK_BYTES)
        for mark, encoding in _MARKS:
            if head.startswith(mark) and self.encoding in (None, encoding):
                if self.encoding is None and encoding != UTF8:
                    self._decode_as(encoding)
                self.encoding = encoding
                if encoding == UTF8:
                    head = head.removeprefix(mark)
                break
        self._waiting = self._convert(head)

    def _fill(self, size: int) -> None:
        """Reads until enough bytes wait, or the file ends."""
        while size < 0 or len(self._waiting) < size:
            missing = _BLOCK_BYTES if size < 0 else size - len(self._waiting)
            # Smaller reads would be many, because characters have other sizes.
            content = self._read(missing if self._decoder is None else max(missing, _BLOCK_BYTES))
            self._waiting += self._convert(content)
            if not content:
                return

    def _convert(self, content: bytes) -> bytes:
        if self.encoding is None and not content.isascii():
            content += self._read(_CHOICE_BYTES)
            self._choose(content)
        if self._decoder is None:
            return content
        try:
            text = self._decoder.decode(content, final=not content)
            if text and not self._has_text:
                # The codec of one byte order keeps the mark.
                self._has_text, text = True, text.removeprefix("\ufeff")
            return text.encode()
        except UnicodeError as error:
            raise InvalidRequestError(
                f"file {self._path}: not {self.encoding} text: {error}"
            ) from error

    def _choose(self, content: bytes) -> None:
        self.encoding = UTF8
        if self._guesses and not _may_be_utf8(content) and _is_windows_1252(content):
            logger.warning(
                "file %s: not UTF-8, so it is read as Windows-1252 (see --encoding)", self._path
            )
            self._decode_as(WINDOWS_1252)

    def _decode_as(self, encoding: str) -> None:
        self.encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def _read(self, size: int) -> bytes:
        return self._stream.read(size)


def _may_be_utf8(content: bytes) -> bool:
    """Whether the bytes are UTF-8, of which the last character may be a part, or damaged UTF-8."""
    try:
        codecs.getincrementaldecoder(UTF8)().decode(content)
    except UnicodeDecodeError:
        return _UTF8_CHARACTER.search(content) is not None
    return True


def _is_windows_1252(content: bytes) -> bool:
    if b"\0" in content:  # no text
        return False
    try:
        content.decode(WINDOWS_1252)
    except UnicodeDecodeError:
        return False
    return True
