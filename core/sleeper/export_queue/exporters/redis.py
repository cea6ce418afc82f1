"""Exports to Redis: `rediss://[USER@]HOST[:PORT][/DATABASE][?prefix=TEXT]`, `redis:` without TLS.

A key is a hash with the name of the prefix, by default the queue's name and a colon, and the key's
text. Its fields are `sequence` and the values as text, without nulls. A key that is gone has no
hash; for a day the string `__gone:<name of the hash>` has its sequence.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa

from sleeper import DISTRIBUTION
from sleeper.datafiles.json_text import plain_text
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.json_values import key_texts
from sleeper.export_queue.exporters.options import check_options, exporter_name, read_path
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret
from sleeper.runs.transport import INSECURE, insecure_connection, must_verify, read_insecure

if TYPE_CHECKING:
    import redis

_TOMBSTONE_PREFIX = "__gone:"
_TOMBSTONE_SECONDS = 86_400
_CA_OPTION = "ssl.ca.location"
_EXPECTED = "redis://USER@HOST:PORT/DATABASE?prefix=TEXT"
_CONNECT_SECONDS = 15
_DATABASE_MAX = 65_535
_COMMANDS_PER_TRIP = 2_000
# KEYS: the hash, its tombstone. ARGV: sequence, seconds of the tombstone or 0, names and values of
# fields. Numbers in Lua have 53 bits, so decimal text is compared. A new key writes first by HSET,
# because after DEL the server would not check its limit of memory.
_SCRIPT = """
local function is_older(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local held = redis.call('HGET', KEYS[1], 'sequence')
local went = redis.call('GET', KEYS[2])
if (held and not is_older(held, ARGV[1])) or (went and not is_older(went, ARGV[1])) then
  return 0
end
if held then
  redis.call('DEL', KEYS[1])
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
else
  redis.call('HSET', KEYS[1], 'sequence', ARGV[1], unpack(ARGV, 3))
  if went then
    redis.call('DEL', KEYS[2])
  end
end
return 1
"""


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the URL or an option is invalid, or the client is missing."""
    check_options(queue, (_CA_OPTION, INSECURE))
    target = _parse(queue)
    _import_client(queue)
    where, hosts = exporter_name(queue), (target.host,)
    is_insecure = read_insecure(where, queue.exporter.options)
    if queue.exporter.kind == "redis" and must_verify(hosts, is_insecure):
        raise insecure_connection(where, hosts, "a URL redis:", "a URL rediss:")


def make(instance: Instance, queue: ExportQueue) -> "RedisExporter":
    """Returns an exporter, which connects on first use."""
    check(instance, queue)
    return RedisExporter(instance, queue)


@dataclass(frozen=True, slots=True)
class _Target:
    """A database of a server, and the beginning of the names of its keys."""

    host: str
    port: int
    database: int
    user: str | None
    prefix: str

    def __str__(self) -> str:
        return f"redis://{self.host}:{self.port}/{self.database}"


class RedisExporter:
    """Writes exports to hashes, newest sequence wins. Connects again after an error."""

    def __init__(self, instance: Instance, queue: ExportQueue) -> None:
        self._instance = instance
        self._queue = queue
        self._target = _parse(queue)
        self._client: redis.Redis | None = None
        self._script: Any = None

    def export(self, batch: ExportBatch) -> None:
        """Runs a script per export, many in one round trip.

        RefusedExportsError for keys that are no hashes.
        """
        import redis

        refused: dict[int, str] = {}
        try:
            client = self._connected()
            for start in range(0, len(batch), _COMMANDS_PER_TRIP):
                part = batch.rows.slice(start, _COMMANDS_PER_TRIP)
                results = self._send(client, ExportBatch(batch.queue, batch.bucket, part))
                errors = ((n, each) for n, each in enumerate(results) if each is not None)
                for position, error in errors:
                    if "WRONGTYPE" not in str(error):
                        raise error
                    refused[start + position] = f"the key of Redis is no hash: {error}"
        except (redis.RedisError, OSError) as error:
            # Errors of values are found before, so the exports wait for the repair of the server.
            self.close()
            raise UnavailableError(f"{self._target}: {error}") from error
        if refused:
            raise RefusedExportsError(refused)

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, client: "redis.Redis", batch: ExportBatch) -> list[Exception | None]:
        """Returns the error of each export, None if it was written or is old."""
        columns = [
            (each.name, plain_text(batch.rows.column(each.name))) for each in batch.queue.values
        ]
        sequences = batch.rows.column(SEQUENCE).to_pylist()
        tombstones = batch.rows.column(TOMBSTONE).to_pylist()
        keys = key_texts(batch).to_pylist()
        pipeline = client.pipeline(transaction=False)
        fields = _fields(columns, len(batch))
        for text, sequence, is_tombstone, values in zip(
            keys, sequences, tombstones, fields, strict=True
        ):
            key = self._target.prefix + text
            arguments = [
                sequence,
                _TOMBSTONE_SECONDS if is_tombstone else 0,
                *([] if is_tombstone else values),
            ]
            self._script([key, _TOMBSTONE_PREFIX + key], arguments, client=pipeline)
        results = pipeline.execute(raise_on_error=False)
        return [each if isinstance(each, Exception) else None for each in results]

    def _connected(self) -> "redis.Redis":
        if self._client is None:
            self._client = self._connect()
            self._script = self._client.register_script(_SCRIPT)
        return self._client

    def _connect(self) -> "redis.Redis":
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        reference, target = self._queue.exporter.password, self._target
        try:
            password = None if reference is None else read_secret(self._instance, reference)
        except InvalidRequestError as error:
            raise UnavailableError(str(error)) from error
        tls: dict[str, Any] = {}
        if self._queue.exporter.kind == "rediss":
            # Older versions of the client do not check the host's name by default.
            tls = {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
            tls["ssl_ca_certs"] = read_path(self._queue, _CA_OPTION)
        return redis.Redis(
            target.host,
            target.port,
            target.database,
            username=target.user,
            password=password,
            socket_timeout=self._queue.timeout_seconds,
            socket_connect_timeout=_CONNECT_SECONDS,
            # A connection that the server has closed meanwhile is opened again.
            retry=Retry(NoBackoff(), 1),
            client_name="sleeper",
            **tls,
        )


def _fields(columns: list[tuple[str, pa.Array]], rows: int) -> list[list[str]]:
    """Returns the names and values of each row, without nulls."""
    lists: list[list[str]] = [[] for _ in range(rows)]
    for name, column in columns:
        for fields, value in zip(lists, column.to_pylist(), strict=True):
            if value is not None:
                fields += (name, value)
    return lists


def _import_client(queue: ExportQueue) -> None:
    try:
        import redis  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{exporter_name(queue)} needs {error.name}: pip install '{DISTRIBUTION}[redis]'"
        ) from error


def _parse(queue: ExportQueue) -> _Target:
    where = exporter_name(queue)

    def refuse(problem: str) -> InvalidRequestError:
        return InvalidRequestError(f"{where}: {problem} (expected {_EXPECTED})")

    try:
        parts = urlsplit(queue.exporter.text)
        port = parts.port
        parameters = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)
        )
    except ValueError:
        # Python's error may show a part of a password.
        raise refuse("the URL is invalid") from None
    if parts.password is not None:
        raise InvalidRequestError(
            f"{where}: the URL has a password, which would be stored (expected none: name the "
            "secret with --password env:NAME, file:PATH or secret:NAME-OR-ARN)"
        )
    if not parts.hostname or parts.fragment:
        raise refuse("the URL has no host" if not parts.hostname else "the URL has a '#'")
    prefix = _read_prefix(queue, parameters)
    if prefix is None:
        raise refuse("the URL has other parameters than one prefix of at least one character")
    database = _read_database(parts)
    if database is None:
        raise refuse("the path of the URL is not the number of a database")
    user = unquote(parts.username) if parts.username else None
    return _Target(parts.hostname, port or 6379, database, user, prefix)


def _read_prefix(queue: ExportQueue, parameters: list[tuple[str, str]]) -> str | None:
    if not parameters:
        return f"{queue.name}:"
    is_valid = [name for name, _ in parameters] == ["prefix"] and parameters[0][1]
    # The name of a hash must not be that of a tombstone.
    return parameters[0][1] if is_valid and not is_valid.startswith("__gone") else None


def _read_database(parts: SplitResult) -> int | None:
    text = parts.path.removeprefix("/")
    if not text:
        return 0
    is_number = text.isascii() and text.isdigit() and int(text) <= _DATABASE_MAX
    return int(text) if is_number else None
