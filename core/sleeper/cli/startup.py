"""Keeps pandas out of commands, which do not use it.

Arrow imports an installed pandas with the first conversion of a Python value (apache/arrow#34994),
which takes longer than a lookup. DataFusion makes such a conversion when it is imported, in a
module that Sleeper does not use.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_POSTPONED = "datafusion.functions.spark"


class _Postponing(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """Finds the module so that it is executed when one of its names is first used."""
        if fullname != _POSTPONED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def postpone_pandas() -> None:
    """Makes later imports of DataFusion work without pandas."""
    sys.meta_path.insert(0, _Postponing())
