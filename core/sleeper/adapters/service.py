"""Creates adapters from the texts of users."""

from collections.abc import Sequence
from dataclasses import replace as changed

from sleeper.adapters.checks import check_adapter
from sleeper.adapters.definition import Adapter, TableSink, check_adapter_name
from sleeper.adapters.message import check_workers
from sleeper.adapters.run import OpenSpark
from sleeper.adapters.source_text import DatabaseOptions, parse_source
from sleeper.adapters.store import AdapterStore
from sleeper.errors import ConflictError, NotFoundError
from sleeper.instance import Instance


def create_adapter(
    instance: Instance,
    name: str,
    source: Sequence[str],
    sink: str,
    options: DatabaseOptions | None = None,
    replace: bool = False,
    reads_source: bool = True,
    spark: OpenSpark | None = None,
) -> Adapter:
    """Checks and stores an adapter. See `parse_source` and `check_adapter` for the arguments.

    ConflictError if the name is taken. With `replace` an existing adapter gets another source and
    sink, and keeps its schedule.
    """
    store = AdapterStore(instance.storage.root)
    earlier = _find(store, name)
    if earlier is not None and not replace:
        raise ConflictError(f"adapter {name!r} already exists (replace it, or choose another name)")
    adapter = Adapter(name, parse_source(instance, source, options), TableSink(sink))
    if earlier is not None and earlier.schedule is not None:
        check_workers(instance, adapter)
    check_adapter(instance, adapter, reads_source, spark)
    if earlier is None:
        store.create(adapter)
    else:
        store.replace(changed(adapter, schedule=earlier.schedule))
    return adapter


def _find(store: AdapterStore, name: str) -> Adapter | None:
    check_adapter_name(name)
    try:
        return store.get(name)
    except NotFoundError:
        return None
