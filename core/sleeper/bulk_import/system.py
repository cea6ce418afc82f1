"""What bulk imports add to the product."""

from sleeper.system import Stack, System

SYSTEM = System(
    name="bulk_import",
    stacks=(
        Stack("BulkImport", "stacks.systems.bulk_import.work:BulkImportStack"),
        Stack(
            "EmrServerless",
            "stacks.systems.bulk_import.emr_serverless:EmrServerlessStack",
            option="EmrServerlessBulkImportStack",
            after="RestApiStack",
            is_default=True,
        ),
        Stack(
            "Emr",
            "stacks.systems.bulk_import.emr:EmrStack",
            option="EmrBulkImportStack",
            after="EmrServerlessBulkImportStack",
        ),
        Stack(
            "PersistentEmr",
            "stacks.systems.bulk_import.persistent_emr:PersistentEmrStack",
            option="PersistentEmrBulkImportStack",
            after="EmrBulkImportStack",
        ),
        Stack(
            "Eks",
            "stacks.systems.bulk_import.eks:EksStack",
            option="EksBulkImportStack",
            after="PersistentEmrBulkImportStack",
        ),
    ),
)
