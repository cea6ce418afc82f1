"""The command of the soak: its exit status, and its report."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from simulation.soak import __main__ as command
from simulation.soak import session
from simulation.soak.journal import Journal
from simulation.soak.session import Settings
from simulation.soak.world import World


@pytest.mark.parametrize("problems", [[], ["table t: block t-0 has no rows"]])
def test_the_exit_status_is_1_after_a_problem(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problems: list[str],
) -> None:
    sessions: list[Settings] = []

    def run_session(settings: Settings) -> Journal:
        sessions.append(settings)
        settings.folder.mkdir(parents=True)
        journal = Journal(settings.folder / "journal.jsonl")
        journal.fault("kill -9", "client", pid=7)
        for problem in problems:
            journal.problem(problem)
        journal.close()
        return journal

    monkeypatch.setattr(command, "run_session", run_session)
    arguments = ["--minutes", "4", "--seed", "9", "--servers", "local,aws,spark"]
    monkeypatch.setattr("sys.argv", ["soak", *arguments, "--folder", str(tmp_path / "soak")])
    assert command.main() == len(problems)
    assert [(each.servers, each.seconds, each.has_spark) for each in sessions] == [
        ("local", 120, True),
        ("aws", 120, True),
    ]
    output = capsys.readouterr().out
    assert "seed 9, 4 minutes" in output
    assert ("problem: table t: block t-0 has no rows" in output) == bool(problems)
    assert ("kill -9 client {'pid': 7}" in output) == bool(problems)


def test_unknown_servers_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["soak", "--servers", "local,gcp"])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 2
    assert "unknown servers: local,gcp (expected local, aws, spark)" in capsys.readouterr().err


def test_the_faults_of_proxies_follow_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[float] = []

    def make_world(*arguments: Any) -> AbstractContextManager[World]:
        drawn.append(arguments[-1].random())
        raise InterruptedError

    monkeypatch.setattr(session, "WORLDS", {"aws": make_world})
    for number, seed in enumerate((1, 2, 1)):
        with pytest.raises(InterruptedError):
            session.run_session(Settings("aws", seed, 1.0, tmp_path / str(number)))
    assert drawn[0] == drawn[2] != drawn[1]
