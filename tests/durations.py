"""Order and distribution of tests, from their recorded durations: `tests/durations.json`.

The unit of a parallel run is a file, or a group of files that share a costly fixture: one Spark
session that has planned and compiled before takes a fifth of the CPU time of one per worker, and
the CDK takes ten seconds to load. Units run in the order of their recorded durations, longest
first, so that no worker ends alone with long tests. Recorded tests and tests against servers are
marked `slow`.

`make test ARGS=--record-durations` measures again. It replaces all entries of the test files
that it runs, so it takes whole files on an otherwise idle machine, and removes those of files that
do not exist.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

FILE = Path(__file__).with_name("durations.json")
SECONDS_MIN = 0.2
# Files that begin so are one group, except for those whose tests start all of their processes.
_GROUPS = {
    "tests/spark/": "tests/spark/",
    "tests/spark_cluster/": "tests/spark_cluster/",
    "tests/infra/": "tests/infra/",
    "tests/simulation/scale/": "tests/infra/",
    "tests/system/test_deployed_": "deployments",
    "tests/system/test_adjunct_start": "deployments",
    "tests/system/test_instance_lifecycle": "deployments",
}
_SPARK = "tests/spark/"
# Spark files from this one on are a group of their own: one session would end long after the rest.
_SECOND_SPARK_GROUP = "tests/spark/test_h"
_SEPARATE = ("test_killed_", "test_memory")
_SERVER_FIXTURES = {"s3_server", "dynamo_server", "ministack_server"}
_SERVER_PARAMETERS = {"s3", "dynoxide", "ministack", "moto", "ecs"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations", action="store_true", help=f"write {FILE.name} from this run"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    records: dict[str, float] = json.loads(FILE.read_text())
    for item in items:
        if item.nodeid in records or _needs_server(item):
            item.add_marker(pytest.mark.slow)
    groups: defaultdict[str, float] = defaultdict(float)
    for test, seconds in records.items():
        groups[_group_of(test)] += seconds
    items.sort(key=lambda item: -groups[_group_of(item.nodeid)])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    # The order is the one of `pytest_collection_modifyitems`.
    config.option.loadscopereorder = False
    return _GroupScheduling(config, log)


class _GroupScheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _group_of(nodeid)


def _needs_server(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return not _SERVER_FIXTURES.isdisjoint(item.fixturenames) or any(
        isinstance(parameter, str) and parameter in _SERVER_PARAMETERS for parameter in parameters
    )


class _Recorder:
    """Sums the phases of each test, and writes the sums when the run ends."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        files = {_file_of(test) for test in self._seconds}
        remaining = {
            t: s
            for t, s in json.loads(FILE.read_text()).items()
            if _file_of(t) not in files and Path(_file_of(t)).exists()
        }
        measurements = {t: round(s, 1) for t, s in self._seconds.items() if s >= SECONDS_MIN}
        text = json.dumps(remaining | measurements, indent=0, sort_keys=True, ensure_ascii=False)
        FILE.write_text(text + "\n")


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _group_of(test: str) -> str:
    file = _file_of(test)
    for begin, group in _GROUPS.items():
        if file.startswith(begin) and not file.removeprefix(begin).startswith(_SEPARATE):
            return f"{group}2" if file >= _SECOND_SPARK_GROUP and group == _SPARK else group
    return file
