"""What stashes add to the product."""

from sleeper.system import Command, LocalJobs, Operation, Queue, Stack, System, Tasks

SYSTEM = System(
    name="stash",
    properties="sleeper.stash.properties",
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
    operations=(Operation("sleeper.stash.control:advance_stashes"),),
    spark_names={"read_stash": "sleeper.stash.spark.source:read_stash"},
    spark_sources=("sleeper.stash.spark.source:SleeperStashSource",),
    spark_jobs={"--stash": "sleeper.stash.spark.job:main"},
    queues=(
        Queue(
            "stash",
            "stash-tasks",
            "stash.task.queue",
            "tasks of stashes",
            "sleeper.runs.retry_policy:JOB",
            run="sleeper.stash.message:run_stash_message",
            local=LocalJobs("stash part", "stash parts"),
            tasks=Tasks("sleeper.stash.properties:STASH_TASKS_MAX"),
        ),
    ),
    problems="sleeper.stash.status:find_problems",
    stacks=(
        Stack(
            "Stash",
            "stacks.systems.stash:StashStack",
            option="StashStack",
            after="AdapterStack",
        ),
    ),
)
