"""How rows are written to an answer, and how a caller chooses."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from starlette.exceptions import HTTPException

from sleeper.query.rows.json_text import json_lines
from sleeper.serve.fetch import RowStream

_SLICE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class RowFormat:
    """`write` gives the bytes of an answer, piece by piece; `told` ends one that breaks off."""

    media_type: str
    write: Callable[[RowStream], Iterator[bytes]]
    tells_errors: bool = False


def json_lines_of(result: RowStream) -> Iterator[bytes]:
    """An object a line (docs/formats.md, "Rows in JSON")."""
    for batch in result:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            rows = batch.slice(start, _SLICE_ROWS)
            lines = pa.ListArray.from_arrays([0, rows.num_rows], json_lines(rows))
            yield pc.binary_join(lines, "\n")[0].as_buffer().to_pybytes() + b"\n"


def arrow_stream_of(result: RowStream) -> Iterator[bytes]:
    """Arrow's IPC stream. One that broke off has no end mark."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, result.schema) as writer:
        yield _taken(sink)
        for batch in result:
            writer.write_batch(batch)
            yield _taken(sink)
    yield _taken(sink)


JSON_LINES = RowFormat("application/x-ndjson", json_lines_of, tells_errors=True)
ARROW_STREAM = RowFormat("application/vnd.apache.arrow.stream", arrow_stream_of)
ROW_FORMATS = (JSON_LINES, ARROW_STREAM)
_OTHER_NAMES = {
    "*/*": JSON_LINES,
    "application/*": JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/json-lines": JSON_LINES,
}


def accepted_format(accept: str | None) -> RowFormat:
    """The format that the header wants most; HTTPException 406 if it takes none of them."""
    if not accept:
        return JSON_LINES
    known = {each.media_type: each for each in ROW_FORMATS} | _OTHER_NAMES
    wanted = sorted(map(_quality, accept.split(",")), key=lambda each: -each[1])
    for name, quality in wanted:
        if quality > 0 and name in known:
            return known[name]
    names = ", ".join(each.media_type for each in ROW_FORMATS)
    raise HTTPException(406, f"rows are given as {names}, not as {accept[:200]}")


def _quality(choice: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in choice.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return name, float(parameter.removeprefix("q="))
            except ValueError:
                return name, 0.0
    return name, 1.0


def _taken(sink: io.BytesIO) -> bytes:
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written
