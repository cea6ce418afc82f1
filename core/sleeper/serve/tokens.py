"""Bearer tokens and their rights.

A token has the right `read`, `write` or `admin`; each includes the previous one. `read` is for
queries, SQL and reports, `write` also for adding and deleting rows, `admin` also for tables: their
creation, properties, versions and deletion. A server on a loopback
address without configured tokens is open for reads, and creates a token for everything else,
because all users of a machine can connect to that address.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from sleeper.errors import InvalidRequestError
from sleeper.runs.transport import is_loopback

TOKEN_VARIABLE = "SLEEPER_SERVE_TOKEN"
_CHARACTERS_MIN = 16
_SCHEME = "Bearer "
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_READING_PATHS = ("/sql", "/queries")


class Right(IntEnum):
    """The rights of tokens. Each includes the lower ones."""

    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Tokens:
    """The rights of tokens, and that of requests without one; `None` if they need one.

    Tokens are never logged or shown, except for a new one at the start.
    """

    rights: Mapping[str, Right]
    open_right: Right | None = None

    def find_right(self, header: str) -> Right | None:
        """Returns the right of an `Authorization` header; `None` if it has no known token."""
        if not header:
            return self.open_right
        result = None
        # Takes the same time for every wrong token.
        for token, right in self.rights.items():
            if hmac.compare_digest(header.encode(), f"{_SCHEME}{token}".encode()):
                result = right
        return result


def required_right(method: str, path: str) -> Right:
    """Returns the right that a request needs."""
    if method in _READING_METHODS:
        return Right.READ
    if method == "POST" and (path in _READING_PATHS or path.endswith("/query")):
        return Right.READ
    if method == "POST" and path.endswith(("/rows", "/delete")):
        return Right.WRITE
    return Right.ADMIN


def make_tokens(
    host: str, rights: Mapping[str, Right], read_only: bool
) -> tuple[Tokens, str | None]:
    """Returns the tokens of a server, and the new one among them if there is one.

    Raises `InvalidRequestError` if other machines can reach the host and there is no token, or if
    one is too short.
    """
    for token in rights:
        _check_token(token)
    if rights:
        return Tokens(rights), None
    if not is_loopback(host):
        raise InvalidRequestError(
            f"other machines can reach host {host!r}: set {TOKEN_VARIABLE} to a token, or pass "
            "--token-file"
        )
    if read_only:
        return Tokens({}, Right.READ), None
    token = secrets.token_urlsafe(32)
    return Tokens({token: Right.ADMIN}, Right.READ), token


def _check_token(token: str) -> None:
    if len(token) < _CHARACTERS_MIN or not token.isascii() or not token.isprintable():
        raise InvalidRequestError(
            f"the token ({TOKEN_VARIABLE} or --token-file) must have at least {_CHARACTERS_MIN} "
            "characters, all ASCII"
        )


def read_tokens(file: Path) -> dict[str, Right]:
    """Returns the tokens in a file. InvalidRequestError if there is none, or a line is invalid.

    The file has one token, with the right `admin`, or a right and a token per line. Empty lines and
    those that begin with `#` are ignored.
    """
    try:
        lines = [line.strip() for line in file.read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"token file {file} cannot be read: {error}") from error
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    if not numbered:
        raise InvalidRequestError(f"token file {file} is empty (expected a token)")
    if len(numbered) == 1 and len(numbered[0][1].split()) == 1:
        return {numbered[0][1]: Right.ADMIN}
    rights: dict[str, Right] = {}
    for number, line in numbered:
        name, _, token = line.partition(" ")
        if name.upper() not in Right.__members__ or not token or token.strip() in rights:
            expected = ", ".join(right.name.lower() for right in Right)
            raise InvalidRequestError(
                f"token file {file}, line {number}: expected a right ({expected}), a space, and a "
                "token that no other line has"
            )
        rights[token.strip()] = Right[name.upper()]
    return rights
