"""Hides pandas from a Python process that a test starts, unless it loads Spark.

Arrow imports an installed pandas with its first array, which takes as much CPU time as all other
imports of `sleeper query`. Functions and containers on AWS have no pandas either.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _HiddenPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> None:
        """Raises ModuleNotFoundError for pandas."""
        del path, target
        if fullname == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


sys.meta_path.insert(0, _HiddenPandas())
