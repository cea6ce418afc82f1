"""What export queues add to the product."""

from sleeper.system import Command, Companion, Queue, Report, Stack, System

SYSTEM = System(
    name="export_queue",
    properties="sleeper.export_queue.properties",
    commands=(
        Command(
            "export-queue",
            "sleeper.export_queue.commands:export_queues",
            "Create, watch and repair export queues, which send changes to other systems.",
            after="adapter",
        ),
    ),
    methods="sleeper.export_queue.methods:InstanceExportQueues",
    reports=(
        Report("export-queues", "sleeper.export_queue.listings:list_export_queues", after="queues"),
    ),
    table_listings="sleeper.export_queue.listings:list_queues_of_table",
    table_lag="sleeper.export_queue.listings:find_lag",
    companions=(
        Companion(
            "sleeper.export_queue.worker_process", "sleeper.export_queue.progress:ExportWatch"
        ),
    ),
    local_port="sleeper.export_queue.local.store:open_local_store",
    aws_port="sleeper.export_queue.aws.store:open_aws_store",
    restore="sleeper.export_queue.registration:restore_queues",
    transactions=(
        "sleeper.export_queue.transactions:CreateExportQueue",
        "sleeper.export_queue.transactions:ChangeExportQueue",
        "sleeper.export_queue.transactions:DeleteExportQueue",
        "sleeper.export_queue.transactions:ExportRows",
    ),
    follower_prefix="export-queue:",
    follower_kinds="sleeper.export_queue.table_queries:find_kinds",
    transaction_part="sleeper.export_queue.attached:AttachedExports",
    check_deletion="sleeper.export_queue.registration:check_deletion",
    code_users="sleeper.export_queue.registration:find_users",
    names={
        "ExportBatch": "sleeper.export_queue.exporter:ExportBatch",
        "ExportQueue": "sleeper.export_queue.methods:ExportQueue",
        "RefusedExportsError": "sleeper.export_queue.exporter:RefusedExportsError",
        "SequencedExport": "sleeper.export_queue.exporter:SequencedExport",
    },
    queues=(
        Queue(
            "export_queue",
            "export-queue.fifo",
            "export.queue",
            "buckets of export queues that have exports",
        ),
    ),
    problems="sleeper.export_queue.listings:find_problems",
    stacks=(
        Stack(
            "ExportQueues",
            "stacks.systems.export_queue.stack:ExportQueueStack",
            option="ExportQueueStack",
            after="IcebergStack",
        ),
    ),
)
