"""The driver of a bulk import, as spark-submit starts it."""

import sys

from sleeper.spark.bulk_import_job import main

if __name__ == "__main__":
    sys.exit(main())
