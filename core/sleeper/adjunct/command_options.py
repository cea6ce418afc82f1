"""The options of `sleeper adjunct`, and what its commands open."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.adjunct.inputs import describe_kinds
from sleeper.cli.arguments import accept_upgrade
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import AWS_PREFIX

if TYPE_CHECKING:
    from sleeper.adjunct.extraction import ExtractorSource
    from sleeper.adjunct.feeds.opening import FeedContext

PATH_VARIABLE = "SLEEPER_ADJUNCT_PATH"
_FOLDER = "adjunct"


def find_path(context: typer.Context, path: Path | None) -> Path:
    """Returns the folder of the stores: the given one, or that of a local instance."""
    if path is not None:
        return path
    where = str(context.obj or "")
    if not where or where.startswith(AWS_PREFIX):
        raise InvalidRequestError(
            f"no folder of stores (expected --path, {PATH_VARIABLE}, or a local instance)"
        )
    return Path(where) / _FOLDER


def complete_store(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the matching stores of the folder."""
    from sleeper.adjunct.versions.folder import store_names

    root = context.find_root().params
    path = context.params.get("path") or os.environ.get(PATH_VARIABLE)
    where = root.get("where")
    try:
        parent = Path(path) if path else Path(str(where)) / _FOLDER
        return [name for name in store_names(parent) if name.startswith(incomplete)]
    except (SleeperError, OSError):  # a completion cannot report errors
        return []


StorePath = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="DIR",
        envvar=PATH_VARIABLE,
        help="Folder of the stores. Default: the folder `adjunct` of a local instance.",
    ),
]
StoreName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the store.", autocompletion=complete_store),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is done.")]
Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="INPUT",
        help=f"{describe_kinds()}.",
    ),
]


@contextmanager
def feed_context(
    context: typer.Context, extractors: "ExtractorSource | None" = None
) -> Iterator["FeedContext"]:
    """Yields what inputs need. The instance is opened on first use."""
    from sleeper.adjunct.extraction import NAMED_EXTRACTORS
    from sleeper.adjunct.feeds.opening import FeedContext, own_instance
    from sleeper.opening import open_instance

    opened = own_instance(partial(open_instance, context.obj, accept_upgrade=accept_upgrade))
    with opened as open_once:
        yield FeedContext(open_once, extractors or NAMED_EXTRACTORS)
