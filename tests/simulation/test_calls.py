"""Calls without faults."""

from simulation.calls import Call, DirectCalls, Fault
from tests.clock import START_MS, FakeClock


def fail(fault: Fault) -> Exception:
    raise AssertionError(fault)


def test_direct_calls_have_their_effect_and_no_fault() -> None:
    calls = DirectCalls(FakeClock())
    assert calls(Call("sqs", "send", "queue"), lambda: "sent", fail) == "sent"
    assert calls.now_ms() == START_MS
    for probability in (0.0, 1.0):
        assert not calls.choose(probability)


def test_a_call_shows_its_target_if_it_has_one() -> None:
    assert str(Call("sqs", "send", "queue")) == "sqs.send queue"
    assert str(Call("sqs", "list")) == "sqs.list"
