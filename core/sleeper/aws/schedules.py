"""EventBridge's rules, which start an instance's background work."""

from collections.abc import Sequence
from typing import Any

from sleeper.aws.errors import translated


def switch_rules(client: Any, rules: Sequence[str], on: bool) -> None:
    """Enables or disables rules, which are given by name or ARN.

    What is already so stays. MissingResourceError if one is missing; those before it are switched.
    """
    for rule in rules:
        name = rule.rpartition("/")[2]
        with translated(f"EventBridge rule {name!r}"):
            (client.enable_rule if on else client.disable_rule)(Name=name)
