"""Where faults happen: a profile prefers the calls of one service, and calls that are rare."""

from random import Random

from simulation.calls import Call, Fault
from simulation.faults import JUMPED, OUTAGE, Faults, Profile
from simulation.scheduling.scheduler import Machine

COMMIT = Call("state", "commit")


def test_the_first_calls_of_an_operation_meet_more_faults() -> None:
    profile = Profile({Fault.LOST: 0.002}, (0.0,), first_calls=20)
    rates = [profile.rate(Fault.LOST, COMMIT, number) for number in (1, 2, 10, 20, 1000)]
    assert rates == [0.04, 0.02, 0.004, 0.002, 0.002]


def test_calls_of_focused_services_meet_more_faults() -> None:
    profile = Profile({Fault.LOST: 0.002}, (0.0,), focused=("state", "dynamodb"))
    calls = (COMMIT, Call("dynamodb", "put_item"), Call("queue", "send"))
    assert [profile.rate(Fault.LOST, call, 9) for call in calls] == [0.016, 0.016, 0.002]


def test_faults_of_all_processes_are_no_more_frequent_at_first_calls() -> None:
    profile = Profile({OUTAGE: 0.002}, (0.0,), first_calls=20)
    assert profile.rate(OUTAGE, COMMIT, 1) == 0.002


def test_first_calls_are_counted_by_operation_and_call() -> None:
    faults = Faults(1, Profile({}, (0.0,)))
    numbers = [
        faults.begin_call(operation, Call("state", call), "client1.0").number
        for operation, call in (
            ("ingest", "commit"),
            ("ingest", "commit"),
            ("delete", "commit"),
            ("ingest", "trim"),
        )
    ]
    assert numbers == [1, 2, 1, 1]


def test_a_few_calls_are_slow_until_the_faults_end() -> None:
    faults = Faults(1, Profile({}, (0.001, 0.001, 0.001), slow_seconds=30.0))
    slow = sum(faults.latency_seconds() > 0.001 for _ in range(1_000))
    assert 40 < slow < 140
    faults.is_on = False
    assert all(faults.latency_seconds() <= 0.001 for _ in range(1_000))


def test_faults_of_the_focus_are_in_every_profile() -> None:
    for seed in range(20):
        profile = Profile.draw(Random(seed), (JUMPED, "split"))
        assert profile.rates[JUMPED] > 0
        assert profile.first_calls > 1
    assert any(not Profile.draw(Random(seed)).rates[JUMPED] for seed in range(20))


def test_a_synchronised_clock_is_wrong_by_a_limited_time() -> None:
    free, synchronised = Machine(), Machine(skew_seconds_max=3600.0)
    for machine in (free, synchronised):
        for seconds in (-7200.0, -7200.0, 1.0):
            machine.jump(seconds)
    assert free.skew_seconds == -14_399.0
    assert synchronised.skew_seconds == -3599.0
