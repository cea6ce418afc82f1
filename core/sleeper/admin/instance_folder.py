"""The folder of property files from which an AWS instance is deployed.

    instance.properties  [tags.properties]
    tables/<name>/table.properties  schema.json  [splits.txt]

Reading checks every file, so that an invalid folder fails before a deployment changes anything.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sleeper.admin.tables import parse_split_points, read_text
from sleeper.errors import InvalidRequestError
from sleeper.partitions.partition import tree_from_split_points
from sleeper.processing.model import Processing, check_table_processing
from sleeper.properties.declaration import INSTANCE_PROPERTIES, SetBy
from sleeper.properties.deployed import NETWORK_VPC
from sleeper.properties.instance import (
    ACCOUNT,
    NETWORK_ENDPOINTS,
    REGION,
    RESOURCE_TAGS,
    SUBNETS,
    VPC,
)
from sleeper.properties.java_text import read_properties_text
from sleeper.properties.table import (
    AGGREGATIONS,
    DOCUMENT,
    FILTERS,
    LATEST_BY,
    NAME,
    ROWS,
    SCHEMA,
    SPLITS_BASE64,
    SPLITS_FILE,
    TABLE_ID,
)
from sleeper.properties.values import (
    SET_BY_DEPLOYMENT,
    InstanceProperties,
    check_set_by_user,
    gchq_names,
    instance_properties,
    table_properties,
)
from sleeper.schema.document import with_document
from sleeper.schema.latest_rows import make_latest
from sleeper.schema.model import schema_from_json, schema_to_json
from sleeper.tables import check_table_name

INLINE_POINTS_MAX = 16 * 1024
"""A deployment puts split points with more characters into an object."""
_ANY_ID = "00000000"
# Other members of TableDefinition have these; a new table gets its own id.
_OMITTED = (NAME.name, SCHEMA.name, SPLITS_FILE.name, TABLE_ID.name)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """A table as its folder describes it; `split_points` has one per line, or is empty."""

    name: str
    schema: str
    settings: Mapping[str, str]
    split_points: str = ""


@dataclass(frozen=True, slots=True)
class InstanceFolder:
    """A checked folder, with the properties that users set, and their tags.

    `warnings` name the settings that have no effect.
    """

    properties: InstanceProperties
    tables: tuple[TableDefinition, ...] = ()
    warnings: tuple[str, ...] = ()


def read_instance_folder(
    instance_file: Path | None, overrides: Mapping[str, str] | None = None
) -> InstanceFolder:
    """Reads and checks the folder of an `instance.properties` file.

    `overrides` take precedence over the file, which is optional. InvalidRequestError names the
    file and the invalid property.
    """
    values: dict[str, str] = {}
    if instance_file is not None:
        values = remove_deployed(_read_properties(instance_file))
        values = _add_tags(values, instance_file.with_name("tags.properties"))
    with _name_file(instance_file):
        properties = instance_properties({**values, **(overrides or {})})
    folder = instance_file.parent / "tables" if instance_file is not None else None
    if folder is None or not folder.is_dir():
        return InstanceFolder(properties, (), properties.warnings())
    paths = (path for path in sorted(folder.iterdir()) if path.is_dir())
    tables = tuple(_read_table(path, properties) for path in paths)
    table_warnings = (
        f"table {table.name}: {warning}"
        for table in tables
        for warning in table_properties(table.settings, properties).warnings()
    )
    return InstanceFolder(properties, tables, (*properties.warnings(), *table_warnings))


def check_table_definition(definition: TableDefinition, instance: InstanceProperties) -> None:
    """Raises InvalidRequestError if the definition is invalid."""
    check_table_name(definition.name)
    check_set_by_user(definition.settings)
    schema = schema_from_json(definition.schema)
    properties = table_properties(
        {
            **definition.settings,
            NAME.name: definition.name,
            TABLE_ID.name: _ANY_ID,
            SCHEMA.name: schema_to_json(schema),
        },
        instance,
    )
    latest = make_latest(properties.get(ROWS).value, properties.get(LATEST_BY) or None)
    schema = with_document(replace(schema, latest=latest), properties.get(DOCUMENT) or None)
    processing = Processing(properties.get(FILTERS), properties.get(AGGREGATIONS))
    check_table_processing(processing, schema)
    is_base64 = properties.get(SPLITS_BASE64)
    points = parse_split_points(schema, definition.split_points, "split points", is_base64)
    tree_from_split_points(schema, points)


def _read_table(folder: Path, instance: InstanceProperties) -> TableDefinition:
    properties_file = folder / "table.properties"
    settings = _read_properties(properties_file) if properties_file.exists() else {}
    name = settings.get(NAME.name, "").strip() or folder.name
    schema_file = folder / "schema.json"
    schema = settings.get(SCHEMA.name) or read_text(schema_file, "schema file")
    points_file = settings.get(SPLITS_FILE.name, "").strip()
    points = folder / (points_file or "splits.txt")
    definition = TableDefinition(
        name,
        schema,
        {key: value for key, value in settings.items() if key not in _OMITTED},
        read_text(points, "split points file") if points_file or points.exists() else "",
    )
    with _name_file(folder):
        check_table_definition(definition, instance)
    return definition


def remove_deployed(values: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties without those that a deployment writes."""
    written = {p.name for p in INSTANCE_PROPERTIES if p.set_by is SetBy.DEPLOYMENT}
    written |= {name for name, set_by in gchq_names().items() if set_by == SET_BY_DEPLOYMENT}
    written -= {ACCOUNT.name, REGION.name}
    if values.get(NETWORK_VPC.name) and values[NETWORK_VPC.name] == values.get(VPC.name):
        # With these set, the next deployment would delete the network that it created.
        written |= {VPC.name, SUBNETS.name}
    return {name: value for name, value in values.items() if name not in written}


def check_kept_network(
    current: Mapping[str, str], after: Mapping[str, str], *, has_endpoints: bool
) -> None:
    """Raises InvalidRequestError if a new default would change the network of an instance.

    `current` are the properties of the deployed instance, `after` those of the folder.
    """
    name = NETWORK_ENDPOINTS.name
    if name in after or NETWORK_VPC.name not in current:
        return
    # Release 0.2.0 does not record it, and its default is true.
    former = NETWORK_ENDPOINTS.parse(current.get(name) or "true")
    if former != has_endpoints:
        raise InvalidRequestError(
            f"property {name} is not set, and the network was deployed with {str(former).lower()}: "
            f"set it in the folder (expected {str(former).lower()}, to keep the network)"
        )


def _add_tags(values: dict[str, str], tags_file: Path) -> dict[str, str]:
    if not tags_file.exists():
        return values
    text = values.get(RESOURCE_TAGS.name, "").strip()
    tags = dict(RESOURCE_TAGS.parse(text)) if text else {}
    tags.update(_read_properties(tags_file))
    for key, value in tags.items():
        if "," in key + value:
            raise InvalidRequestError(f"{tags_file}: tag {key!r} has a comma (not allowed in tags)")
    return {**values, RESOURCE_TAGS.name: RESOURCE_TAGS.kind.format(tuple(tags.items()))}


def _read_properties(path: Path) -> dict[str, str]:
    text = read_text(path, "properties file")
    with _name_file(path):
        return dict(read_properties_text(text))


@contextmanager
def _name_file(where: Path | None) -> Iterator[None]:
    """Prefixes invalid requests with the name of the file."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}" if where else str(error)) from error
