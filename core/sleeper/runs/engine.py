"""Engine and file settings from properties."""

import os

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.json_limits import JsonLimits
from sleeper.datafiles.write.file import FileSettings
from sleeper.instance import Instance
from sleeper.properties.declaration import Property
from sleeper.properties.instance import (
    DELETED_KEYS_CACHE_BYTES,
    ENGINE_THREADS,
    INGEST_LINE_BYTES_MAX,
    JSON_BYTES_MAX,
    JSON_DEPTH_MAX,
    MERGE_FILES_MAX,
)
from sleeper.properties.table import (
    COMPRESSION_CODEC,
    KEY_FILTER_BITS_PER_ROW,
    KEY_FILTER_BYTES_MAX,
    LAYOUT,
    PAGE_SIZE_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS_MAX,
    CompressionCodec,
    ParquetLayout,
)
from sleeper.properties.values import TableProperties


def engine_settings(instance: Instance, memory: Property[int]) -> EngineSettings:
    """Returns the engine's settings. `memory` is the property with the memory limit in bytes."""
    properties = instance.properties()
    return EngineSettings(
        instance.storage.spill_folder(),
        properties.get(memory),
        properties.get(MERGE_FILES_MAX),
        properties.get(ENGINE_THREADS) or os.cpu_count() or 1,
        instance.storage.sources.buckets(),
        properties.get(INGEST_LINE_BYTES_MAX),
        properties.get(DELETED_KEYS_CACHE_BYTES),
        JsonLimits(properties.get(JSON_DEPTH_MAX), properties.get(JSON_BYTES_MAX)),
    )


_PAGE_ROWS_MAX = {ParquetLayout.LOOKUP: 512, ParquetLayout.SCAN: 20_000}


def file_settings(properties: TableProperties) -> FileSettings:
    """Returns the settings of the table's data files."""
    codec = properties.get(COMPRESSION_CODEC)
    return FileSettings(
        "none" if codec is CompressionCodec.UNCOMPRESSED else codec.value,
        properties.get(ROW_GROUP_ROWS_MAX),
        properties.get(ROW_GROUP_BYTES),
        properties.get(PAGE_SIZE_BYTES),
        _PAGE_ROWS_MAX[properties.get(LAYOUT)],
        properties.get(KEY_FILTER_BITS_PER_ROW),
        properties.get(KEY_FILTER_BYTES_MAX),
    )
