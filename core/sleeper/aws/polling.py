"""Switches off the polls of queues that are empty.

Lambda polls the queue of a function all the time, and each poll has a price. The queues *on demand*
are those whose messages may wait for some minutes: their *source*, the event source mapping of
Lambda, is enabled while they have messages and disabled while they have none. The watch switches
them, because it counts the messages of all queues anyway.
"""

import logging
from collections.abc import Mapping

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translate_errors
from sleeper.jobs.queue import QueueCounts, QueueName

logger = logging.getLogger(__name__)


def switch_sources(
    sources: Mapping[str, str], counts: Mapping[QueueName, QueueCounts]
) -> dict[str, bool]:
    """Enables the sources of queues with messages and disables the others.

    `sources` are the ids of sources by the names of their queues. Returns those that were switched,
    with whether they are enabled now. A source whose state is changing is left to the next call.
    """
    client = aws_client("lambda")
    switched = {}
    for name, source in sources.items():
        is_needed = counts[QueueName(name)].unfinished > 0
        with translate_errors(f"the source of queue {name}"):
            state = client.get_event_source_mapping(UUID=source)["State"]
            if state == ("Disabled" if is_needed else "Enabled"):
                client.update_event_source_mapping(UUID=source, Enabled=is_needed)
                logger.info("the polls of queue %s are %s", name, "on" if is_needed else "off")
                switched[name] = is_needed
    return switched
