"""Files of the workload: the product reads the rows that were written, in every format."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from simulation.model.tables import TableKind, random_definition, random_row
from simulation.model.values import batch_rows
from simulation.workload.ingests import to_arrow
from simulation.workload.text_files import file_suffix, random_options, write_file
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_paths
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.storage.source_options import DEFAULT_OPTIONS, FileFormat, SourceOptions

NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize(
    "options",
    [
        DEFAULT_OPTIONS,
        SourceOptions(FileFormat.CSV, ",", header=True),
        SourceOptions(FileFormat.CSV, ";", header=True),
        SourceOptions(FileFormat.JSON),
    ],
    ids=["parquet", "csv", "semicolons", "json"],
)
def test_the_product_reads_what_was_written(options: SourceOptions, tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "simulated", {})
    instance = open_local_instance(tmp_path / "instance")
    for seed in range(4):
        random = Random(seed)
        definition, name = random_definition(random, TableKind.APPEND), f"table-{seed}"
        schema = definition.schema
        create_table(instance, name, definition.schema_text, {})
        rows = to_arrow([random_row(random, schema, NOW_MS) for _ in range(30)], schema)
        file = tmp_path / f"{name}{file_suffix(options)}"
        file.write_bytes(write_file(rows, schema, options, random))
        ingest_paths(instance, name, [str(file)], options=options)
        with open_query(instance, name, Query()) as result:
            assert Counter(each for batch in result for each in batch_rows(batch)) == Counter(
                batch_rows(rows)
            )
    instance.close()


def test_all_formats_are_chosen() -> None:
    random = Random(1)
    formats = {random_options(random).format for _ in range(40)}
    assert formats == {None, FileFormat.CSV, FileFormat.JSON}
