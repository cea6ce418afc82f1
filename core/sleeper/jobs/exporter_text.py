"""The text of an exporter as listings show it: without the parts of URLs that may be secret."""

from collections.abc import Mapping
from urllib.parse import urlsplit

_KINDS_OF_URLS = ("opensearch", "webhook")


def describe_exporter(text: str, options: Mapping[str, str]) -> str:
    """Returns the text, and whether its connection may be insecure.

    Paths and queries of webhooks often are credentials, so only an index of OpenSearch is shown.
    """
    kind, _, target = text.partition(":")
    if kind in _KINDS_OF_URLS:
        text = f"{kind}:{_describe_url(target, kind == 'opensearch')}"
    return f"{text} (insecure)" if options.get("insecure") == "true" else text


def _describe_url(url: str, shows_path: bool) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "..."
    host = parts.netloc.rpartition("@")[2]
    is_short = parts.path in ("", "/") or shows_path
    path = parts.path if is_short and not parts.query else "/..."
    return f"{parts.scheme}://{host}{path}"
