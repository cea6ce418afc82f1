"""Loads the libraries of Spark's Python workers before their daemon forks them.

Spark's own daemon loads nothing: each worker, and each one that replaces a failed one, takes more
than a second of CPU time to load them. It does so because no thread may run when a process forks.
The two that the libraries start are switched off here.
"""

import os
import sys

# The daemon that looks for installed data sources forks one worker, once.
_LOOKUP = "pyspark.sql.worker.lookup_data_sources"

if "pyspark.daemon" in sys.orig_argv and _LOOKUP not in sys.orig_argv:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

    import sleeper.local.instance
    import sleeper.spark.cluster
    import sleeper.spark.data_source  # noqa: F401
