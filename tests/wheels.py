"""Wheels of a few lines, made with nothing but zipfile."""

import contextlib
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sleeper.user_code.registry import unpacked_on_path

ITERATOR_HEAD = """
class Whole:
    def __init__(self, schema, row_key, sort_key, config):
        self.schema, self.row_key, self.sort_key, self.config = schema, row_key, sort_key, config

    def __call__(self, batches):
        yield from batches
"""


def make_wheel(
    folder: Path,
    project: str = "my_code",
    modules: Mapping[str, str] | None = None,
    iterators: Mapping[str, str] | None = None,
    strategies: Mapping[str, str] | None = None,
    *,
    exporters: Mapping[str, str] | None = None,
    extractors: Mapping[str, str] | None = None,
    version: str = "1.0",
    tag: str = "py3-none-any",
    needs: tuple[str, ...] = (),
    extra: Mapping[str, str] | None = None,
    points: str | None = None,
    without: str = "",
) -> Path:
    """Writes `<project>-<version>-<tag>.whl` and returns its path.

    `modules` are sources by module name, of which `<project>` with `Whole` is the default;
    `iterators`, `strategies`, `exporters` and `extractors` are entry points; `points` replaces them
    as text.
    """
    if modules is None:
        modules = {project: ITERATOR_HEAD}
        iterators = {"Whole": f"{project}:Whole"} if iterators is None else iterators
    groups = {
        "sleeper.iterators": iterators,
        "sleeper.compaction_strategies": strategies,
        "sleeper.exporters": exporters,
        "sleeper.extractors": extractors,
    }
    if points is None:
        points = "".join(
            f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in names.items())
            for group, names in groups.items()
            if names
        )
    info = f"{project}-{version}.dist-info"
    header = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    header += "".join(f"Requires-Dist: {need}\n" for need in needs)
    members = {f"{name.replace('.', '/')}.py": source for name, source in modules.items()}
    members |= {
        f"{info}/METADATA": header,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": points,
        f"{info}/RECORD": "",
        **(extra or {}),
    }
    path = folder / f"{project}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            if not without or not name.endswith(without):
                archive.writestr(zipfile.ZipInfo(name), text)
    return path


@contextlib.contextmanager
def isolated_user_code() -> Iterator[None]:
    """Unloads the code of wheels on entry and on exit."""
    _unload()
    try:
        yield
    finally:
        _unload()


def _unload() -> None:
    folders = unpacked_on_path()
    for entry in folders:
        sys.path.remove(entry)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.startswith(("my_code", "sleeper_example")) or file.startswith(tuple(folders)):
            del sys.modules[name]
