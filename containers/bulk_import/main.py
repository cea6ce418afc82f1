"""The driver of a bulk import or of an adapter's run, as spark-submit starts it."""

import sys

from sleeper.spark import adapter_job, bulk_import_job

if __name__ == "__main__":
    sys.exit(adapter_job.main() if "--adapter" in sys.argv else bulk_import_job.main())
