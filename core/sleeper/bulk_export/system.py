"""What bulk exports add to the product."""

from sleeper.system import Queue, Stack, System, Tasks

SYSTEM = System(
    name="bulk_export",
    properties="sleeper.bulk_export.properties",
    queues=(
        Queue(
            "bulk_export",
            "bulk-export",
            "bulk.export.queue",
            "bulk exports",
            "sleeper.runs.retry_policy:JOB",
            id_member="exportId",
            run="sleeper.bulk_export.service:run_queued_export",
            tasks=Tasks("sleeper.bulk_export.properties:EXPORT_TASKS_MAX"),
        ),
    ),
    stacks=(
        Stack(
            "BulkExport",
            "stacks.systems.bulk_export:BulkExportStack",
            option="BulkExportStack",
            after="EksBulkImportStack",
        ),
    ),
)
