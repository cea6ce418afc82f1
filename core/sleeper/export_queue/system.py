"""What export queues add to the product."""

from sleeper.system import Command, System

SYSTEM = System(
    name="export_queue",
    commands=(
        Command(
            "export-queue",
            "sleeper.export_queue.commands:export_queues",
            "Create, watch and repair export queues, which send changes to other systems.",
            after="adjunct",
        ),
    ),
    methods="sleeper.export_queue.methods:InstanceExportQueues",
    names={
        "ExportBatch": "sleeper.export_queue.exporter:ExportBatch",
        "ExportQueue": "sleeper.export_queue.export_queue:ExportQueue",
        "RefusedExportsError": "sleeper.export_queue.exporter:RefusedExportsError",
        "SequencedExport": "sleeper.export_queue.exporter:SequencedExport",
    },
)
