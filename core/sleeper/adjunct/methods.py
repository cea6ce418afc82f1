"""Adjunct stores of an instance from Python."""

import os
from typing import TYPE_CHECKING, Any

from sleeper.instance import Instance as Ports

if TYPE_CHECKING:
    from sleeper.adjunct.adjunct_store import AdjunctStore


class InstanceAdjunctStores:
    """The method of `Instance` that opens adjunct stores."""

    _ports: Ports

    def adjunct_store(
        self,
        name: str,
        input: str | None = None,
        path: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> "AdjunctStore":
        """Opens an adjunct store of the instance and fills it from `input`.

        Without an input, it reads the store that another process fills, such as `sleeper adjunct
        run`. `path` is the folder of the stores; the default is the one of the instance. The
        `options` are those of `sleeper.adjunct.AdjunctStore.open`, which opens a store without an
        instance, and the errors too.
        """
        from sleeper.adjunct.adjunct_store import AdjunctStore

        folder = self._ports.storage.shared_folder("adjunct") if path is None else path
        return AdjunctStore.open(name, input, folder, instance=self, **options)
