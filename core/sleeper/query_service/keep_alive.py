"""Frames of no rows for those who listen while a subquery works and has nothing to say.

Clients give up after 30 s of silence (FORMATS: Query results, WebSocket). They take these for
rows. The last one is sent before the block ends, so that none follows a query's last frame.
"""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sleeper.errors import SleeperError
from sleeper.query.message import QueryMessage
from sleeper.query_service.telling import SendFrame, listeners

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0


@contextmanager
def kept_alive(
    message: QueryMessage, send: SendFrame, seconds: float = KEEP_ALIVE_SECONDS
) -> Iterator[None]:
    """Tells the query's connections now and then that it works. Never fails."""
    connections = listeners(message)
    if not connections:
        yield
        return
    frame = json.dumps({"message": "rows", "queryId": message.frame_id, "rows": []})
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(seconds):
            for connection in connections:
                try:
                    send(connection, frame)
                except SleeperError as error:
                    # Who sends rows finds it too, and fails the query.
                    logger.info("query %s: %s", message.query_id, error)
                    return

    thread = threading.Thread(target=tell, name="keep-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
