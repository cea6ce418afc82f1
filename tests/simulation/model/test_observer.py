"""The observer: what it has of a table that was cloned and deleted between two looks."""

from pathlib import Path

from simulation.model.journal import Clone
from simulation.workload.ingests import ingest_from_memory
from simulation.workload.tables import create
from sleeper.admin.clone import clone_table
from sleeper.admin.tables import delete_table
from tests.simulation.model.driver import Driver


def test_a_clone_of_rows_that_were_never_observed_has_no_model(tmp_path: Path) -> None:
    driver = Driver(tmp_path, 3)
    client, observer = driver.client, driver.observer
    create(client)
    (source,) = client.catalogue.active()
    observer.refresh()
    while observer.instance.table(source.name).state.newest_number() < 3:
        ingest_from_memory(client)
    for name, version in (("observed", 1), ("unobserved", 3)):
        client.journal.clones[name] = Clone(source.id, version)
        clone_table(client.instance, source.name, name, version)
    delete_table(client.instance, source.name)
    modelled = {observer.names[model.id] for model in observer.refresh()}
    assert modelled == {"observed"}
    driver.close()
