"""The disk of a simulated machine: a folder that loses what was not synchronised.

    disk = install_disk(folder, hooks)    # everything in the folder is durable now
    disk.end(process)                     # a process died: its locks are free, its files refuse
    disk.lose_power(random)               # all processes died, and the folder is what survived
    disk.uninstall()
    restore = install_waits(hooks)        # the product waits for other processes in virtual time

The *hooks* are the world's decisions (`simulation.disk.hooks`): which process runs, whether an
operation fails, and how time passes. Once installed, SQLite and Python's own functions work on the
simulated disk for every path in the folder, so code of the product runs on it unchanged.
"""

from simulation.disk.disk import Disk, install_disk
from simulation.disk.hooks import DirectHooks, DiskHooks
from simulation.disk.waits import install_waits

__all__ = ["DirectHooks", "Disk", "DiskHooks", "install_disk", "install_waits"]
