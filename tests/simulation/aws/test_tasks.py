"""Tasks that ECS stops, and functions at their time limit."""

from tests.simulation.programs import run_program


def test_a_task_is_interrupted_then_exits_and_then_is_killed() -> None:
    assert run_program("-m", "tests.simulation.aws.stopped_tasks") == [
        "1 s: polite is interrupted",
        "1 s: polite closes",
        "15 s: busy returns its message",
        "call 0",
        "call 1",
        "SIGTERM from ECS",
        "SIGTERM from ECS",
        "exits during a job",
        "SIGTERM from ECS",
        "killed by ECS",
        "time limit before sqs.receive",
    ]
