"""Texts of exporters in listings."""

import pytest

from sleeper.export_queue.definition import describe_exporter


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("null:", "null:"),
        ("webhook:https://h", "webhook:https://h"),
        ("webhook:https://h:8443/", "webhook:https://h:8443/"),
        ("webhook:https://h/?token=abc", "webhook:https://h/..."),
        ("webhook:https://h/hook?token=abc", "webhook:https://h/..."),
        ("webhook:https://h/services/abc", "webhook:https://h/..."),
        ("webhook:https://me:abc@h/", "webhook:https://h/"),
        ("webhook:https://[::1/abc", "webhook:..."),
        ("opensearch:https://h/orders", "opensearch:https://h/orders"),
        ("opensearch:https://h/orders?key=abc", "opensearch:https://h/..."),
        ("postgres://me@h/d?table=t", "postgres://me@h/d?table=t"),
        ("redis://h:6379/0?prefix=a", "redis://h:6379/0?prefix=a"),
    ],
)
def test_paths_and_queries_that_may_be_secret_are_left_out(text: str, shown: str) -> None:
    assert describe_exporter(text, {}) == shown
    assert describe_exporter(text, {"insecure": "false"}) == shown
    assert describe_exporter(text, {"insecure": "true"}) == f"{shown} (insecure)"
