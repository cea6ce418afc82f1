"""What adapters add to the product."""

from sleeper.system import Command, System

SYSTEM = System(
    name="adapters",
    commands=(
        Command(
            "adapter",
            "sleeper.adapters.commands:adapters",
            "Create, run and schedule adapters, which load databases, files and tables.",
            after="resume",
        ),
    ),
    methods="sleeper.adapters.methods:InstanceAdapters",
    spark_jobs={"--adapter": "sleeper.adapters.spark.job:main"},
)
