"""A disk under processes of a history, each of which has its own caches."""

from pathlib import Path

from tests.simulation.programs import run_program

PROGRAM = """
from pathlib import Path
from random import Random
from simulation.scheduling import patching
patching.install()
import os, sqlite3
from simulation.disk import DirectHooks, install_disk
from simulation.scheduling.scheduler import Machine, Process, Scheduler
scheduler = Scheduler(Random(7), 1000.0)
patching.attach(scheduler, 7)
process, other = Process("one", Machine()), Process("other", Machine())

class Hooks(DirectHooks):
    def before(self, operation, path):
        print(operation, os.path.relpath(path, folder))

folder = Path(FOLDER)
disk = install_disk(folder, Hooks(Random(1)))

def write():
    (folder / "file").write_bytes(b"content")
    with sqlite3.connect(folder / "database") as connection:
        connection.execute("PRAGMA user_version = 1")

def lose_power():
    print("power fails")
    disk.lose_power(Random(1))
    print("power is back")
    (folder / "file").write_bytes(b"content")

def main():
    write()
    scheduler.join(scheduler.spawn(other, "main", lose_power))

scheduler.run(process, main)
"""


def test_a_power_failure_in_a_process_is_one_of_the_whole_machine(folder: Path) -> None:
    lines = run_program(PROGRAM.replace("FOLDER", repr(str(folder))))
    fails, back = lines.index("power fails"), lines.index("power is back")
    assert {"create file", "sync database"} <= set(lines[:fails])
    assert lines[fails + 1 : back] == []
    # The hook is that of the disk, and is called once.
    assert lines[back + 1 :] in (["create file"], ["open file"])


CHECKING = """
from pathlib import Path
from simulation.scheduling import patching
patching.install()
from simulation.local.disk import MachineDisk
from simulation.processes import Processes
from simulation.scheduling.scheduler import Machine, Process
from simulation.world import World
world = World.create(1)
process = Process("one", Machine())

def main():
    disk = MachineDisk(world, Processes(world), Path(FOLDER))
    print(disk.process() == process)
    with world.scheduler.exclusively():
        print(disk.process() == process)

world.scheduler.run(process, main)
"""


def test_files_of_a_check_stay_open_when_the_process_that_ran_it_dies(folder: Path) -> None:
    assert run_program(CHECKING.replace("FOLDER", repr(str(folder)))) == ["True", "False"]
