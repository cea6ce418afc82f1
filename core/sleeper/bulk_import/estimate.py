"""Split points for a new table, estimated from a sample of its first files."""

import base64
from collections.abc import Sequence

from sleeper.bulk_import.splits import (
    combine_samples,
    keys_per_split,
    plan_splits,
    sample_split,
)
from sleeper.datafiles.sidecars.sketches import distinct_inside, weighted_quantiles
from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import key_value_to_json
from sleeper.partitions.region import whole_region
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema
from sleeper.storage.bucket_folder import SourceFile

_SPLIT_BYTES_MAX = 1024**3
_BOOLEANS = {True: "true", False: "false"}


def estimate_split_points(
    paths: Sequence[SourceFile], schema: Schema, leaves: int
) -> list[KeyValue]:
    """Returns the values of the first row key field that cut the rows into equal leaves.

    There are fewer than `leaves - 1` of them if single values have many rows. Samples the row
    groups of Parquet files, and reads other files whole. InvalidRequestError if a file is missing,
    unreadable or without rows, or a row of text does not fit.
    """
    splits = plan_splits(paths, schema, 1, _SPLIT_BYTES_MAX)
    keys_max = keys_per_split(len(splits))
    sample = combine_samples(sample_split(split, schema, keys_max) for split in splits)
    points = [(key[0], weight) for key, weight in sample.weighted]
    if not points:
        raise InvalidRequestError("the files have no rows (expected rows to sample)")
    within = whole_region(schema).ranges[0]
    lowest = points[0][0]
    ranks = [position / leaves for position in range(1, leaves)]
    # A cut at the lowest value would leave an empty leaf below it.
    matches = (value for value in weighted_quantiles(points, ranks) if value != lowest)
    return distinct_inside(matches, within)


def format_split_points(
    points: Sequence[KeyValue], schema: Schema, strings_encoded: bool = False
) -> str:
    """Returns one split point per line, as a table's split points file has them.

    Byte arrays are base64, and so are strings if `strings_encoded`. InvalidRequestError for a
    string that takes several lines.
    """
    field = schema.row_keys[0]
    return "".join(f"{_format(point, field, strings_encoded)}\n" for point in points)


def _format(point: KeyValue, field: Field, strings_encoded: bool) -> str:
    plain = key_value_to_json(field, point)
    if isinstance(plain, bool):
        return _BOOLEANS[plain]
    text = str(plain)
    if field.type is not PrimitiveType.STRING:
        return text
    if strings_encoded:
        return base64.b64encode(text.encode()).decode()
    if text.splitlines() != [text]:
        raise InvalidRequestError(
            f"split point {text!r} of field {field.name!r} is not one line (expected --base64, and "
            "sleeper.table.splits.base64.encoded=true of the table)"
        )
    return text
