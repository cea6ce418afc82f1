"""Options of the format `sleeper`, as they are written after `.option(`.

Their names are taken in any case. One that is not known is refused: a misspelt range would
read the whole table.
"""

import csv
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.instance import INSTANCE_VARIABLE
from sleeper.partitions.json import key_value_from_json, region_from_json
from sleeper.partitions.region import Region
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.schema.model import Schema
from sleeper.spark.opened import absolute

_TABLE = ("instance", "table")
_ROWS = ("keys", "range", "ranges", "region", "regions", "columns", "partitionBytes")
READ_OPTIONS = (*_TABLE, *_ROWS, "asOf")
FOLLOW_OPTIONS = (*_TABLE, *_ROWS, "startingVersion", "follower", "maxFilesPerTrigger")
WRITE_OPTIONS = (*_TABLE, "jobId")
# Spark hands its own option on to the sink.
SINK_OPTIONS = (*_TABLE, "checkpointLocation")

_PARTITION_BYTES = 32 * 1024**2
_FILES_PER_TRIGGER = 1000

Options = Mapping[str, str]


def check_known(options: Options, known: tuple[str, ...]) -> None:
    """InvalidRequestError if there is an option of another name."""
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names:
            raise InvalidRequestError(
                f"option {name!r} is not known here; there are {', '.join(known)}"
            )


def instance_named(options: Options) -> str:
    """Where the instance is, for every process; SLEEPER_INSTANCE if no option says."""
    named = options.get("instance") or os.environ.get(INSTANCE_VARIABLE)
    if not named:
        raise InvalidRequestError(
            "option 'instance' is missing: name a folder, or aws:INSTANCE_ID, or set "
            f"{INSTANCE_VARIABLE}"
        )
    return absolute(named)


def table_named(options: Options) -> str:
    """The table's name."""
    named = options.get("table")
    if not named:
        raise InvalidRequestError("option 'table' is missing: the name of a table")
    return named


def query_asked(options: Options, schema: Schema) -> Query:
    """The rows of all keys, ranges and regions together; every row if there are none."""
    regions = tuple(_regions(options, schema))
    names = ("keys", "range", "ranges", "region", "regions")
    is_narrowed = any(options.get(name) is not None for name in names)
    return Query(regions if is_narrowed else None, columns_asked(options), None, _as_of(options))


def columns_asked(options: Options) -> tuple[str, ...] | None:
    """Names with commas between them, quoted as in CSV where needed, or a JSON list."""
    text = options.get("columns")
    if text is None:
        return None
    if text.lstrip().startswith("["):
        names = [str(name) for name in _json_list("columns", text)]
    else:
        names = _names_of_csv(text)
    if not any(names):
        raise InvalidRequestError(f"option 'columns': {text!r} names no column")
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"option 'columns': {text!r} names a column twice")
    return tuple(names)


def _names_of_csv(text: str) -> list[str]:
    try:
        rows = list(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise InvalidRequestError(f"option 'columns': {text!r}: {error}") from error
    return [name.strip() for row in rows for name in row]


def partition_bytes(options: Options) -> int:
    """How much of a table's files a Spark partition has at least, where it can."""
    return _number(options, "partitionBytes", 0) or _PARTITION_BYTES


def files_per_trigger(options: Options) -> int:
    """About how many files a micro-batch has at most."""
    return _number(options, "maxFilesPerTrigger", 1) or _FILES_PER_TRIGGER


def starting_version(options: Options) -> int | None:
    """What a new stream starts after; None is the newest."""
    if options.get("startingVersion", "").lower() == "latest":
        return None
    return _number(options, "startingVersion", 0) or 0


def _as_of(options: Options) -> int | None:
    return _number(options, "asOf", 1)


def _number(options: Options, name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"option {name!r}: {text!r} is not a whole number") from None
    if number < least:
        raise InvalidRequestError(f"option {name!r}: {number} is less than {least}")
    return number


def _regions(options: Options, schema: Schema) -> Iterator[Region]:
    keys = options.get("keys")
    if keys is not None:
        yield from make_key_regions(schema, [_key(schema, k) for k in _json_list("keys", keys)])
    for name in ("range", "region"):
        text = options.get(name)
        if text is not None:
            yield _region(schema, name, _json(name, text))
    for name in ("ranges", "regions"):
        text = options.get(name)
        if text is not None:
            for each in _json_list(name, text):
                yield _region(schema, name, each)


def _key(schema: Schema, raw: Any) -> list[Any]:
    """A key is a list with a value per row key field; of a single field, the value will do."""
    values = raw if isinstance(raw, list) else [raw]
    if len(values) != len(schema.row_keys):
        return values  # refused where every key is, by how many there should be
    return [key_value_from_json(f, v) for f, v in zip(schema.row_keys, values, strict=True)]


def _region(schema: Schema, name: str, raw: Any) -> Region:
    """`[min, max]` over the first row key field, either null, or an object (docs/formats.md,
    "Regions and ranges").
    """
    if isinstance(raw, dict):
        return region_from_json(schema, raw)
    if not isinstance(raw, list) or len(raw) != 2:
        raise InvalidRequestError(
            f"option {name!r}: {json.dumps(raw)} is neither [min, max] nor a region such as "
            f'{{"{schema.row_keys[0].name}": {{"min": …, "max": …}}}}'
        )
    field = schema.row_keys[0]
    low, high = (None if end is None else key_value_from_json(field, end) for end in raw)
    return make_range_region(schema, low, high)


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {name!r}: {text!r} is not JSON: {error}") from error


def _json_list(name: str, text: str) -> list[Any]:
    found = _json(name, text)
    if not isinstance(found, list):
        raise InvalidRequestError(f"option {name!r}: {text!r} is not a JSON list")
    return found
