"""What bulk exports add to the product."""

from sleeper.system import Stack, System

SYSTEM = System(
    name="bulk_export",
    stacks=(
        Stack(
            "BulkExport",
            "stacks.systems.bulk_export:BulkExportStack",
            option="BulkExportStack",
            after="EksBulkImportStack",
        ),
    ),
)
