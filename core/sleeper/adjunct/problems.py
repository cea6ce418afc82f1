"""Problems of the adjunct stores of an instance's folder: updates that fail."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.reports.problem import Problem, ProblemState, check_each


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the stores that the processes of this machine share."""
    parent = instance.storage.shared_folder("adjunct")
    if parent.is_dir():
        # A function of AWS has no stores, and not the libraries that read them.
        from sleeper.adjunct.versions.folder import store_names

        yield from check_each("adjunct store", store_names(parent), partial(_find_problem, parent))


def _find_problem(parent: Path, name: str) -> Iterator[Problem]:
    from sleeper.adjunct.control import find_status

    try:
        status = find_status(parent, name)
    except NotFoundError:
        return  # deleted meanwhile
    if status.problem is not None:
        since_ms = status.updated_ms or None
        yield Problem(ProblemState.FAILING, "adjunct store", name, status.problem, since_ms)
