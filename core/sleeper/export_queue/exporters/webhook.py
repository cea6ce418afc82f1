"""Sends exports to a webhook: `webhook:URL`.

A POST request has the JSON body {"queue": ..., "bucket": ..., "exports": [...]}. A status of 2xx
means that the receiver has all of them. With 2xx or 422 the answer may name exports that the
receiver refuses, {"refused": [{"position": 0, "reason": "..."}]}, and it has the others then.
"""

import hashlib
import hmac
import json
import re

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.http_client import (
    HTTP_OPTIONS,
    HttpAnswer,
    HttpClient,
    parse_address,
)
from sleeper.export_queue.exporters.json_values import export_texts
from sleeper.export_queue.exporters.options import (
    check_options,
    check_text,
    exporter_name,
    read_flag,
)
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret

SIGNATURE_HEADER = "X-Sleeper-Signature"
_HEADER = "header."
_OPTIONS = HTTP_OPTIONS | {"sign", "password-header"}
_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_VALUE = r"[\x20-\x7e]{0,1000}"
_UNPROCESSABLE = 422
# These concern credentials and load, not the exports.
_UNAVAILABLE = frozenset({401, 407, 408, 425, 429})
_REFUSALS = frozenset(range(400, 500)) - _UNAVAILABLE
# Headers of the request itself.
_RESERVED = frozenset(
    {"connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"}
    | {SIGNATURE_HEADER.lower()}
)
# Options are stored in the definition, and shown.
_SECRET = re.compile("auth|cookie|passw|secret|token|api-?key|credential", re.IGNORECASE)


def check(_instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError if the settings are invalid. Connects to nothing."""
    check_options(queue, _OPTIONS, _HEADER)
    parse_address(queue)
    _own_headers(queue)
    if "password-header" in queue.exporter.options:
        _check_header_name(queue, queue.exporter.options["password-header"])
    for name in ("sign", "password-header"):
        if name in queue.exporter.options and queue.exporter.password is None:
            raise InvalidRequestError(
                f"{exporter_name(queue)}: option {name} without a password "
                "(expected --password env:NAME, file:PATH or secret:NAME-OR-ARN)"
            )
    if read_flag(queue, "sign") and "password-header" in queue.exporter.options:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: options sign and password-header (expected one of them: a "
            "password that signs is not sent)"
        )


def make(instance: Instance, queue: ExportQueue) -> "WebhookExporter":
    """Returns the exporter."""
    check(instance, queue)
    password = queue.exporter.password
    return WebhookExporter(queue, None if password is None else read_secret(instance, password))


class WebhookExporter:
    """Sends each batch as one request."""

    def __init__(self, queue: ExportQueue, secret: str | None) -> None:
        self._address = parse_address(queue)
        self._client = HttpClient(
            queue, self._address, _REFUSALS, () if secret is None else (secret,)
        )
        self._headers = {"Content-Type": "application/json", **_own_headers(queue)}
        self._signing_key: bytes | None = None
        if secret is None:
            return
        if read_flag(queue, "sign"):
            self._signing_key = secret.encode()
        elif "password-header" in queue.exporter.options:
            name = queue.exporter.options["password-header"]
            self._headers[name] = check_header_secret(queue, secret)
        else:
            self._headers["Authorization"] = f"Bearer {check_header_secret(queue, secret)}"

    def export(self, batch: ExportBatch) -> None:
        """See the protocol."""
        body = _request_body(batch)
        headers = dict(self._headers)
        if self._signing_key is not None:
            digest = hmac.new(self._signing_key, body, hashlib.sha256).hexdigest()
            headers[SIGNATURE_HEADER] = f"sha256={digest}"
        answer = self._client.post(self._address.path, body, headers, self._client.deadline())
        reasons = self._refusals(answer, len(batch))
        if reasons:
            raise RefusedExportsError(reasons)
        self._client.check(answer)

    def close(self) -> None:
        """See the protocol."""
        self._client.close()

    def _refusals(self, answer: HttpAnswer, exports: int) -> dict[int, str]:
        """Returns reasons by position of the exports that the answer names as refused."""
        if not answer.is_success and answer.status != _UNPROCESSABLE:
            return {}
        try:
            raw = json.loads(answer.body)
        except ValueError:
            return {}
        if not isinstance(raw, dict) or not raw.get("refused"):
            return {}
        reasons: dict[int, str] = {}
        for each in raw["refused"] if isinstance(raw["refused"], list) else [None]:
            position = each.get("position") if isinstance(each, dict) else None
            if each is None or type(position) is not int or not 0 <= position < exports:
                raise UnavailableError(
                    f"{self._address.shown}: the answer has a refused export without a valid "
                    f"position (expected 0 to {exports - 1})"
                )
            reason = each.get("reason")
            reasons[position] = self._client.shorten(str(reason or "no reason given"))
        return reasons


def check_header_secret(queue: ExportQueue, secret: str) -> str:
    """Returns the secret. InvalidRequestError without it if it cannot be in a header."""
    if re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", secret) is None:
        raise InvalidRequestError(
            f"{exporter_name(queue)}: the password has characters that cannot be in a header "
            "(expected printable ASCII)"
        )
    return secret


def _request_body(batch: ExportBatch) -> bytes:
    texts = export_texts(batch)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), ",")[0]
    start = f'{{"queue":{json.dumps(batch.queue.name)},"bucket":{batch.bucket},"exports":['
    return b"".join((start.encode(), joined.as_buffer(), b"]}"))


def _own_headers(queue: ExportQueue) -> dict[str, str]:
    headers: dict[str, str] = {}
    for option, value in queue.exporter.options.items():
        if not option.startswith(_HEADER):
            continue
        name = _check_header_name(queue, option.removeprefix(_HEADER))
        if _SECRET.search(name):
            raise InvalidRequestError(
                f"{exporter_name(queue)}: header {name} may contain a secret, which would be "
                "stored (expected --password, sent as the header of option password-header)"
            )
        if re.fullmatch(_VALUE, value) is None:
            raise InvalidRequestError(
                f"{exporter_name(queue)}: the value of header {name} is invalid "
                "(expected at most 1,000 printable ASCII characters)"
            )
        headers[name] = value
    return headers


def _check_header_name(queue: ExportQueue, name: str) -> str:
    check_text(queue, "header name", name, _NAME, "letters, digits and '-'")
    if name.lower() in _RESERVED:
        raise InvalidRequestError(f"{exporter_name(queue)}: header {name} cannot be set")
    return name
