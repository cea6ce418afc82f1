"""What adjunct stores add to the product."""

from sleeper.system import Command, Stack, System

SYSTEM = System(
    name="adjunct",
    properties="sleeper.adjunct.properties",
    commands=(
        Command(
            "adjunct",
            "sleeper.adjunct.commands:adjunct",
            "Fill and read adjunct stores: local copies of tables, files or streams, for lookups.",
            after="adapter",
        ),
    ),
    methods="sleeper.adjunct.methods:InstanceAdjunctStores",
    enricher="sleeper.adjunct.enrichment.enricher:Enricher",
    spark_names={
        "enrich": "sleeper.adjunct.spark.enrichment:enrich",
        "StoreSource": "sleeper.adjunct.spark.enrichment:StoreSource",
    },
    problems="sleeper.adjunct.problems:find_problems",
    stacks=(
        Stack(
            "Adjunct",
            "stacks.systems.adjunct.stack:AdjunctStack",
            option="AdjunctStack",
            after="ExportQueueStack",
        ),
    ),
)
