"""What federated queries of Athena add to the product."""

from sleeper.system import Stack, System

SYSTEM = System(
    name="athena",
    properties="sleeper.athena.properties",
    stacks=(
        Stack(
            "Athena",
            "stacks.systems.athena:AthenaStack",
            option="AthenaStack",
            after="QueryStack",
            services=("athena",),
        ),
    ),
)
