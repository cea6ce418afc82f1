"""The driver of a bulk import, an adapter's run or a stash, as spark-submit starts it."""

import sys

from sleeper.spark import adapter_job, bulk_import_job, stash_job

_JOBS = {"--adapter": adapter_job, "--stash": stash_job}

if __name__ == "__main__":
    job = next((_JOBS[each] for each in sys.argv if each in _JOBS), bulk_import_job)
    sys.exit(job.main())
