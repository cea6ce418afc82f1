"""The driver of a bulk import or of a job of a system, as spark-submit starts it."""

import sys

from sleeper.spark import bulk_import_job
from sleeper.systems import load, systems

_JOBS = {argument: job for system in systems() for argument, job in system.spark_jobs.items()}

if __name__ == "__main__":
    job = next((_JOBS[each] for each in sys.argv if each in _JOBS), None)
    sys.exit(bulk_import_job.main() if job is None else load(job)())
