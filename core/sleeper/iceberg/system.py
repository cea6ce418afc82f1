"""What tables for readers of Apache Iceberg add to the product."""

from sleeper.system import Command, Operation, Stack, System

SYSTEM = System(
    name="iceberg",
    properties="sleeper.iceberg.properties",
    commands=(
        Command(
            "iceberg",
            "sleeper.iceberg.commands:iceberg",
            "Publish tables for engines that read Apache Iceberg.",
            after="stash",
        ),
    ),
    methods="sleeper.iceberg.methods:InstanceIceberg",
    routes="sleeper.iceberg.catalog:catalog_routes",
    purge="sleeper.iceberg.purging:purge_published",
    problems="sleeper.iceberg.status:find_problems",
    operations=(Operation("sleeper.iceberg.automatic:publish_due"),),
    stacks=(
        Stack(
            "Iceberg",
            "stacks.systems.iceberg:IcebergStack",
            option="IcebergStack",
            after="StashStack",
        ),
    ),
)
