"""What adapters add to the product."""

from sleeper.system import Command, LocalJobs, Operation, Queue, Report, Stack, System, Tasks

SYSTEM = System(
    name="adapters",
    properties="sleeper.adapters.properties",
    commands=(
        Command(
            "adapter",
            "sleeper.adapters.commands:adapters",
            "Create, run and schedule adapters, which load databases, files and tables.",
            after="resume",
        ),
    ),
    methods="sleeper.adapters.methods:InstanceAdapters",
    reports=(Report("adapter-jobs", "sleeper.adapters.report:report_runs", after="deletion-jobs"),),
    definitions="adapters",
    operations=(Operation("sleeper.adapters.due:start_due_adapters"),),
    spark_jobs={"--adapter": "sleeper.adapters.spark.job:main"},
    queues=(
        Queue(
            "adapter",
            "adapter-runs.fifo",
            "adapter.run.queue",
            "runs of adapters",
            "sleeper.runs.retry_policy:JOB",
            run="sleeper.adapters.queued_run:run_adapter_message",
            local=LocalJobs("adapter run", "adapter runs"),
            tasks=Tasks(
                "sleeper.adapters.properties:ADAPTER_TASKS_MAX",
                "sleeper.adapters.properties:ADAPTER_TASK_SUBNETS",
                "sleeper.adapters.properties:ADAPTER_TASK_SECURITY_GROUPS",
            ),
        ),
    ),
    problems="sleeper.adapters.problems:find_problems",
    stacks=(
        Stack(
            "Adapters",
            "stacks.systems.adapters:AdapterStack",
            option="AdapterStack",
            after="BulkExportStack",
        ),
    ),
)
