"""The stored definitions of an instance's adapters: `adapters/<name>.json` in its root.

Beside it, `adapters/<name>.due` has the due time of the last run that its schedule sent, in
milliseconds since the epoch.
"""

from dataclasses import dataclass

from sleeper.adapters.definition import ADAPTERS, Adapter, check_adapter_name
from sleeper.errors import ConflictError, DataError, NotFoundError, did_you_mean
from sleeper.storage.location import DataRoot

ADAPTERS_FOLDER = "adapters"
_ENDING = ".json"
_DUE_ENDING = ".due"


@dataclass(frozen=True, slots=True)
class AdapterStore:
    """The definitions below a root. Every change is atomic and durable on return."""

    root: DataRoot

    def create(self, adapter: Adapter) -> None:
        """Stores a new definition. ConflictError if the name is taken."""
        if not self.root.create(_path(adapter.name), _format(adapter)):
            raise ConflictError(f"adapter {adapter.name!r} already exists")

    def replace(self, adapter: Adapter) -> None:
        """Replaces a definition. NotFoundError if none has the name."""
        self.get(adapter.name)
        self.root.put(_path(adapter.name), _format(adapter))

    def get(self, name: str) -> Adapter:
        """Returns the definition of that name. NotFoundError if there is none."""
        check_adapter_name(name)
        try:
            content = self.root.read(_path(name))
        except NotFoundError:
            near = did_you_mean(name, self.names())
            raise NotFoundError(f"adapter {name!r} does not exist{near}") from None
        return _parse(name, content)

    def list(self) -> tuple[Adapter, ...]:
        """Returns all definitions, by name."""
        adapters = []
        for name in self.names():
            try:
                adapters.append(_parse(name, self.root.read(_path(name))))
            except NotFoundError:
                continue  # deleted meanwhile
        return tuple(adapters)

    def delete(self, name: str) -> None:
        """Deletes the definition of that name. NotFoundError if there is none."""
        self.get(name)
        self.root.delete([_path(name), _due_path(name)])

    def last_due_ms(self, name: str) -> int | None:
        """Returns the due time of the last run that a schedule sent; None before the first."""
        try:
            return int(self.root.read(_due_path(name)))
        except NotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{_due_path(name)} has no due time: {error}") from error

    def record_due(self, name: str, due_ms: int) -> None:
        """Records the due time of a run that was sent."""
        self.root.put(_due_path(name), str(due_ms).encode())

    def names(self) -> tuple[str, ...]:
        """Returns the names of all adapters, in order."""
        paths = (each.path for each in self.root.list_objects(ADAPTERS_FOLDER))
        names = (path.removeprefix(f"{ADAPTERS_FOLDER}/") for path in paths)
        return tuple(sorted(n.removesuffix(_ENDING) for n in names if n.endswith(_ENDING)))


def _path(name: str) -> str:
    return f"{ADAPTERS_FOLDER}/{name}{_ENDING}"


def _due_path(name: str) -> str:
    return f"{ADAPTERS_FOLDER}/{name}{_DUE_ENDING}"


def _format(adapter: Adapter) -> bytes:
    return ADAPTERS.format(adapter).encode()


def _parse(name: str, content: bytes) -> Adapter:
    what = f"definition of adapter {name!r}"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{what} is not UTF-8 text: {error}") from error
    adapter: Adapter = ADAPTERS.parse(text, what, DataError)
    return adapter
