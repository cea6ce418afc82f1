"""Opens the lookups that tables declare for the rows of their ingests.

Stores and Arrow are loaded on first use, because few processes ingest.
"""

import hashlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sleeper.adjunct.definition import DAY_SECONDS, StoreDefinition
from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import OpenTable
from sleeper.processing.enrichment import Lookup, check_fields, check_not_itself
from sleeper.schema.model import Schema

if TYPE_CHECKING:
    from sleeper.adjunct.enrichment.lookups import StoreEnrichment
    from sleeper.adjunct.enrichment.pinned_stores import PinnedStores
    from sleeper.adjunct.versions.version import StoreVersion

# The input decides whether its changes are still known, so a quiet one needs no new load.
_AGE_SECONDS_MAX = 30 * DAY_SECONDS
_DIGEST_CHARACTERS = 8


class Enricher:
    """The stores of an instance's tables in this process. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: PinnedStores | None = None

    def open(
        self, table: OpenTable, lookups: Sequence[Lookup], schema: Schema
    ) -> "StoreEnrichment":
        """Opens the lookups of a table, as `sleeper.instance.Instance.open_enrichment`."""
        stores = self._open_stores()
        from sleeper.adjunct.enrichment.lookups import bind_lookups

        check_fields(lookups, schema)
        versions: dict[str, StoreVersion] = {}
        for lookup in lookups:
            check_not_itself(lookup, table.ref.name)
            if lookup.store not in versions:
                versions[lookup.store] = _pin(stores, table, lookup)
        return bind_lookups(lookups, versions, schema)

    def close(self) -> None:
        """Closes the stores that no job reads any more. Idempotent."""
        with self._lock:
            stores, self._opened = self._opened, None
        if stores is not None:
            stores.close()

    def _open_stores(self) -> "PinnedStores":
        with self._lock:
            if self._opened is None:
                from sleeper.adjunct.enrichment.pinned_stores import PinnedStores

                self._opened = PinnedStores(self._clock)
            return self._opened


def _pin(stores: "PinnedStores", table: OpenTable, lookup: Lookup) -> "StoreVersion":
    from sleeper.adjunct.feeds.opening import FeedContext

    instance = table.instance
    # Tables may use one name for different inputs, and instances one folder.
    text = f"{instance.where}\n{lookup.input}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    definition = StoreDefinition(
        f"{lookup.store}-{digest}", lookup.input, max_age_seconds=_AGE_SECONDS_MAX
    )
    context = FeedContext(lambda: instance)
    try:
        return stores.pin(definition, instance.storage.shared_folder("adjunct"), context)
    except NotFoundError as error:
        raise InvalidRequestError(f"enrichment from store {lookup.store!r}: {error}") from error
