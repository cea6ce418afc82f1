"""The simulated ECS, EventBridge, Secrets Manager and STS."""

from typing import Any

import pytest

from simulation.services.world import Services
from sleeper.aws.clients import config_bucket_names
from sleeper.aws.errors import MissingResourceError, translate_errors
from sleeper.aws.secrets import read_managed_secret
from sleeper.aws.task_launcher import EcsTaskLauncher
from tests.simulation.services.worlds import World


def test_tasks_run_until_they_stop(services: Services, world: World) -> None:
    launcher = EcsTaskLauncher(services.client("ecs"), "cluster", "arn/family:1", ["s"], ["g"])
    assert launcher.start(12).started == 12
    tasks = services.control.tasks
    assert launcher.running() == len(tasks.pending) == 12
    tasks.stop(tasks.pending.popleft().arn)
    assert launcher.running() == 11
    world.chosen = lambda _probability: True
    launch = launcher.start(2)
    assert (launch.started, launch.failures) == (0, ("Capacity is unavailable at this time",))


def test_rules_are_switched(services: Services) -> None:
    client: Any = services.client("events")
    services.control.rules["rule"] = True
    client.disable_rule(Name="rule")
    assert services.control.rules == {"rule": False}
    client.enable_rule(Name="rule")
    assert services.control.rules == {"rule": True}
    with pytest.raises(MissingResourceError), translate_errors("rule"):
        client.enable_rule(Name="missing")


def test_secrets_and_the_account(services: Services) -> None:
    services.control.secrets["password"] = "sesame"
    with services.install():
        assert read_managed_secret("password") == "sesame"
        assert config_bucket_names("x").plain == "sleeper-x-config-000000000000"
