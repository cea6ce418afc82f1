"""Text in messages of users."""

from sleeper.errors import InvalidRequestError


def check_text(text: str, what: str) -> None:
    """InvalidRequestError for characters that no path, name or key of any store can have."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequestError(f"{what} has a character that is no text: {text[:100]!r}")
