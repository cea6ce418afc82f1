"""The methods of `Instance` that systems add."""

from typing import TYPE_CHECKING

from sleeper.systems import load, systems

if TYPE_CHECKING:
    # For type checkers and editors, which cannot follow references.
    from sleeper.adapters.methods import InstanceAdapters
    from sleeper.adjunct.methods import InstanceAdjunctStores
    from sleeper.export_queue.methods import InstanceExportQueues
    from sleeper.iceberg.methods import InstanceIceberg
    from sleeper.stash.methods import InstanceStashes

    class SystemMethods(
        InstanceAdapters,
        InstanceStashes,
        InstanceIceberg,
        InstanceExportQueues,
        InstanceAdjunctStores,
    ):
        """The methods of `Instance` that systems add."""

else:
    SystemMethods = type(
        "SystemMethods",
        tuple(load(system.methods) for system in systems() if system.methods is not None),
        {"__doc__": __doc__},
    )
