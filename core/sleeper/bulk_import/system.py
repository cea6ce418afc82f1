"""What bulk imports add to the product."""

from sleeper.system import Queue, Stack, System

SYSTEM = System(
    name="bulk_import",
    queues=(
        Queue(
            "bulk_import_emr",
            "bulk-import-emr-jobs",
            "bulk.import.emr.job.queue",
            "bulk import jobs on a transient EMR cluster",
            "sleeper.runs.retry_policy:SUBMISSION",
            id_member="id",
        ),
        Queue(
            "bulk_import_persistent_emr",
            "bulk-import-persistent-emr-jobs",
            "bulk.import.persistent.emr.job.queue",
            "bulk import jobs on a persistent EMR cluster",
            "sleeper.runs.retry_policy:PERSISTENT_CLUSTER",
            id_member="id",
            run="sleeper.bulk_import.start:run_persistent_import",
        ),
        Queue(
            "bulk_import_emr_serverless",
            "bulk-import-emr-serverless-jobs",
            "bulk.import.emr.serverless.job.queue",
            "bulk import jobs on EMR Serverless",
            "sleeper.runs.retry_policy:SUBMISSION",
            id_member="id",
        ),
        Queue(
            "bulk_import_eks",
            "bulk-import-eks-jobs",
            "bulk.import.eks.job.queue",
            "bulk import jobs on EKS",
            "sleeper.runs.retry_policy:SUBMISSION",
            id_member="id",
        ),
    ),
    stacks=(
        Stack("BulkImport", "stacks.systems.bulk_import.work:BulkImportStack"),
        Stack(
            "EmrServerless",
            "stacks.systems.bulk_import.emr_serverless:EmrServerlessStack",
            option="EmrServerlessBulkImportStack",
            after="RestApiStack",
            is_default=True,
            services=("emr-serverless",),
            image="sleeper.bulk_import.images:emr_image",
        ),
        Stack(
            "Emr",
            "stacks.systems.bulk_import.emr:EmrStack",
            option="EmrBulkImportStack",
            after="EmrServerlessBulkImportStack",
            services=("emr",),
            image="sleeper.bulk_import.images:emr_image",
        ),
        Stack(
            "PersistentEmr",
            "stacks.systems.bulk_import.persistent_emr:PersistentEmrStack",
            option="PersistentEmrBulkImportStack",
            after="EmrBulkImportStack",
            services=("emr",),
            image="sleeper.bulk_import.images:emr_image",
        ),
        Stack(
            "Eks",
            "stacks.systems.bulk_import.eks:EksStack",
            option="EksBulkImportStack",
            after="PersistentEmrBulkImportStack",
            services=("eks",),
            image="sleeper.bulk_import.images:eks_image",
        ),
    ),
)
