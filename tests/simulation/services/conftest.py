"""A world with chosen faults, and the services of an account in it."""

import pytest

from simulation.services.world import Services
from tests.simulation.services.worlds import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def services(world: World) -> Services:
    return world.services()
