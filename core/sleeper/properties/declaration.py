"""Declarations of properties, and their catalogue."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Generic, TypeVar

from sleeper.errors import InvalidRequestError
from sleeper.properties.value_kind import ValueKind

T = TypeVar("T")


class SetBy(Enum):
    """The party that sets a property."""

    USER = "user"
    DEPLOYMENT = "deployment"
    SYSTEM = "system"


class Scope(Enum):
    """The scope of a property."""

    INSTANCE = "instance"
    TABLE = "table"


class Group(StrEnum):
    """The heading of a property in the documentation. Systems have their own."""

    DEFINITION = "Table definition"
    STORAGE = "Data files"
    INSTANCE = "Instance"
    LOCAL = "Local instance"
    DEPLOYMENT = "Deployment on AWS"
    STATE = "State store, queues and trackers"
    ENGINE = "Engine"
    INGEST = "Ingest"
    INGEST_BATCHER = "Ingest batcher"
    BULK_IMPORT = "Bulk import"
    SPARK = "Spark"
    COMPACTION = "Compaction"
    SPLITTING = "Partition splitting"
    COLLECTION = "Garbage collection"
    QUERY = "Query"
    ATHENA = "Athena"
    DEPLOYED = "Set by the deployment"


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One property.

    `default` is its value when unset, unless `default_from` names the property whose
    value it then takes. A property without either is required, and reading it while it
    is unset is an error, unless its kind is optional.
    """

    name: str
    kind: ValueKind[T]
    default: T | None
    group: str
    description: str
    scope: Scope = Scope.INSTANCE
    set_by: SetBy = SetBy.USER
    redeploy: bool = False
    required: bool = False
    default_from: "Property[T] | None" = None

    def parse(self, text: str) -> T:
        """Returns the typed value. InvalidRequestError names property, value and expected value."""
        try:
            return self.kind.parse(text)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"property {self.name}: {error}") from error
        except (ValueError, KeyError) as error:
            raise InvalidRequestError(
                f"property {self.name} cannot be {text[:200]!r}: expected {self.kind.expected}"
            ) from error


class Catalogue:
    """Declarations in their order, each name once."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._by_name: dict[str, Property[Any]] = {}

    def add(self, declaration: Property[T]) -> Property[T]:
        """Adds a declaration and returns it."""
        if declaration.name in self._by_name:
            raise ValueError(f"property {declaration.name} is declared twice")
        self._by_name[declaration.name] = declaration
        return declaration

    def find(self, name: str) -> Property[Any] | None:
        """Returns the declaration of that name."""
        return self._by_name.get(name)

    def names(self) -> tuple[str, ...]:
        """Returns all names."""
        return tuple(self._by_name)

    def __iter__(self) -> Iterator[Property[Any]]:
        return iter(self._by_name.values())


INSTANCE_PROPERTIES = Catalogue(Scope.INSTANCE)
TABLE_PROPERTIES = Catalogue(Scope.TABLE)
