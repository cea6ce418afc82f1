"""Problems of the adjunct stores of an instance's folder: updates that fail."""

from collections.abc import Iterator

from sleeper.adjunct.control import find_status
from sleeper.adjunct.versions.folder import store_names
from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.reports.problem import Problem, ProblemState


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the stores that the processes of this machine share."""
    parent = instance.storage.shared_folder("adjunct")
    if not parent.is_dir():
        return
    for name in store_names(parent):
        try:
            status = find_status(parent, name)
        except NotFoundError:
            continue  # deleted meanwhile
        if status.problem is not None:
            since_ms = status.updated_ms or None
            yield Problem(ProblemState.FAILING, "adjunct store", name, status.problem, since_ms)
