"""A master is connected to before Spark waits for it."""

import socket

import pytest

from sleeper.errors import UnavailableError
from sleeper.spark.masters import check_master
from tests.servers.process import free_ports


def test_one_of_several_masters_is_enough() -> None:
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{port}")
    check_master("local[2]")
    check_master("yarn")


@pytest.mark.parametrize("text", ["127.0.0.1:1,localhost:1", "nobody.invalid:7077", "host"])
def test_masters_that_cannot_be_reached_are_named(text: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        check_master(f"spark://{text}")
    message = str(caught.value)
    assert message.startswith(f"cannot connect to the master spark://{text}: ")
    assert all(f"{address}: " in message for address in text.split(","))
