"""Commands on properties that only gchq/sleeper uses."""

from tests.unit.cli.conftest import Sleeper


def test_an_ignored_property_is_set_with_a_warning_and_printed(cities: Sleeper) -> None:
    name = "sleeper.bulk.export.memory.mb"
    changed = cities("instance", "set", f"{name}=2048")
    assert (changed.status, name in changed.stderr, "ignored" in changed.stderr) == (0, True, True)
    assert cities("instance", "get", name).stdout == "2048\n"
    name = "sleeper.table.query.data.engine"
    changed = cities("table", "set", "cities", f"{name}=datafusion")
    assert (changed.status, name in changed.stderr, "ignored" in changed.stderr) == (0, True, True)
    assert cities("table", "get", "cities", name).stdout == "datafusion\n"


def test_an_unknown_property_is_refused(cities: Sleeper) -> None:
    for command in (("instance", "get"), ("table", "get", "cities")):
        refused = cities(*command, "sleeper.bulk.export.memory.mbs")
        assert (refused.status, "is not a property" in refused.stderr) == (1, True)
