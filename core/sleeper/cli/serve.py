"""`sleeper serve`: an instance over HTTP and WebSocket."""

import os
from typing import Annotated

import typer

from sleeper import DISTRIBUTION
from sleeper.cli.opened import opened
from sleeper.cli.output import note
from sleeper.errors import InvalidRequestError
from sleeper.jobs.process import interrupted_by_sigterm


def serve(
    context: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="0: any that is free.")
    ] = 8080,
) -> None:
    """Answer queries over HTTP, and over WebSocket at /live, until it is interrupted.

    Only this machine can reach it unless --host says otherwise. Then callers must give the
    bearer token in SLEEPER_SERVE_TOKEN; put a proxy with TLS before it. The page at / shows
    tables and runs queries; /openapi.json says what can be asked.

    \b
    Examples:
      sleeper serve
      SLEEPER_SERVE_TOKEN=... sleeper serve --host 0.0.0.0 --port 80
    """
    with opened(context) as instance:
        try:
            from sleeper.serve.access import TOKEN_VARIABLE
            from sleeper.serve.server import serve as run
        except ModuleNotFoundError as error:
            raise InvalidRequestError(
                f"sleeper serve needs {error.name}: pip install '{DISTRIBUTION}[serve]'"
            ) from error
        token = os.environ.pop(TOKEN_VARIABLE, None)
        try:
            with interrupted_by_sigterm():
                run(instance, host, port, token, lambda url: note(f"listening on {url}"))
        except KeyboardInterrupt:
            note("stopped")
