"""Short soaks: processes on servers under faults lose no row, repeat none, and leave nothing."""

from pathlib import Path

import pytest

from simulation.soak.run import Soak
from simulation.soak.session import Settings, describe, run_session
from tests.seeds import choose_seed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("servers", "seconds"), [("local", 6), ("aws", 6)])
def test_processes_under_faults_lose_no_row_and_leave_no_orphan(
    tmp_path: Path, servers: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if servers == "aws":
        # The end without orphans takes another minute there. `make soak MINUTES=n` has it.
        monkeypatch.setattr(Soak, "_finish", lambda _: None)
    settings = Settings(servers, choose_seed(), seconds, tmp_path / "soak")
    journal = run_session(settings)
    print(describe(journal, settings, seconds))
    assert journal.problems == []
    assert journal.faults.total() > 0
    assert journal.rows_checked > 0
    assert not settings.folder.exists()


def test_a_row_that_was_never_sent_is_missed_and_the_folder_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Soak.run

    def run_with_bug(soak: Soak, seconds: float) -> None:
        block = soak.model.add_block("shared", (5, 6))
        block.begin("never sent").acknowledge(is_promise=False)
        run(soak, seconds)

    monkeypatch.setattr(Soak, "run", run_with_bug)
    monkeypatch.setattr(Soak, "_finish", Soak.calm)
    settings = Settings("local", choose_seed(), 0, tmp_path / "soak")
    journal = run_session(settings)
    (problem,) = journal.problems
    assert "block shared-0 has no rows (expected the value ['never sent'])" in problem
    assert (settings.folder / "journal.jsonl").exists()
    report = describe(journal, settings, 0)
    assert f"again: python -m simulation.soak --minutes 0 --seed {settings.seed}" in report
