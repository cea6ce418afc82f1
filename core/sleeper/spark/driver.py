"""The frame of driver programs: the instance, logs, signals and exit statuses."""

import logging
import sys
from collections.abc import Callable
from contextlib import closing

from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.jobs.process import interrupted_by_sigterm
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job
from sleeper.storage.descriptors import raise_descriptor_limit

_INTERRUPTED = 130  # the status that shells report for SIGINT


def run_driver(where: str, work: Callable[[Instance], str]) -> int:
    """Opens the instance, does the work, and writes the outcome that it returns.

    Returns exit status 0 for done (or done before), 1 for failed or refused with its reason.
    SIGTERM, with which platforms cancel jobs, acts as Ctrl-C: the tracker records the failure.
    """
    retry_as_job()
    raise_descriptor_limit()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # Its log has the arguments of all calls, passwords among them.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        with interrupted_by_sigterm(), closing(open_instance(where)) as instance:
            outcome = work(instance)
    except SleeperError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    sys.stderr.write(f"{outcome}\n")
    return 0
