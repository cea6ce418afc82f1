"""What stashes add to the product."""

from sleeper.system import Command, System

SYSTEM = System(
    name="stash",
    commands=(
        Command(
            "stash",
            "sleeper.stash.schedule_commands:stash",
            "Copy tables as gzipped JSON lines or Parquet to a folder or bucket, and read the "
            "copies.",
            after="snapshot",
        ),
    ),
    methods="sleeper.stash.methods:InstanceStashes",
    spark_names={"read_stash": "sleeper.stash.spark.source:read_stash"},
    spark_sources=("sleeper.stash.spark.source:SleeperStashSource",),
    spark_jobs={"--stash": "sleeper.stash.spark.job:main"},
)
