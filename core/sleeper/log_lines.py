"""Log records of command-line processes as lines."""

import logging

from sleeper.errors import SleeperError


class LineFormatter(logging.Formatter):
    """Formats a record with an expected error as one line. Others have a traceback.

    An expected error, such as a full disk, says what is wrong and where.
    """

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, SleeperError | OSError):
            return super().format(record)
        record.message = f"{record.getMessage()}: {' '.join(str(error).split())}"
        return self.formatMessage(record)


def log_lines(form: str) -> None:
    """Writes warnings and errors to standard error as lines of the form."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
