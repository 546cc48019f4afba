"""``demur serve``: a model as a small HTTP service."""

import ipaddress
import multiprocessing
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from demur.cli.console import load_table_model, note, notes, say, share
from demur.cli.options import OUTPUT, ModelFolder, Repeatable, panel
from demur.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

ACCESS = panel("Access")
SERVER = panel("Server")


def serve(
    model: ModelFolder,
    host: Annotated[str, SERVER(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, SERVER("--port", "-p", min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    workers: Annotated[int, SERVER(min=1, max=64, help="Number of worker processes.")] = 1,
    drain_seconds: Annotated[
        float, SERVER(min=0, help="Seconds to keep serving after SIGTERM while /ready returns 503.")
    ] = 0.0,
    max_rows: Annotated[int, ACCESS(min=1, help="Maximum number of rows in a request.")] = 10_000,
    max_bytes: Annotated[int, ACCESS(min=1, help="Maximum size of a request in bytes.")] = 5_000_000,
    allow_host: Annotated[
        Repeatable, ACCESS(help="Host name that clients may use, e.g. behind a proxy; * for any.")
    ] = None,
    api_key_file: Annotated[Path | None, ACCESS(help="File of API keys, one per line; or set DEMUR_API_KEY.")] = None,
    report: Annotated[
        Path | None,
        OUTPUT(help="HTML report to serve at /report.", show_default="report.html in the folder, if any"),
    ] = None,
    audit: Annotated[
        float,
        OUTPUT(
            help="Share of answered rows to draw for review, marked in the field why.",
            callback=share(zero=True, one=True),
        ),
    ] = 0.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], OUTPUT(help="Lowest level to log; info logs every request.")
    ] = "info",
) -> None:
    """Serve a model over HTTP until Ctrl+C: POST /decide for programs, a page at / for people.

    By default it listens on this machine only.

    Example: demur serve model/
    """
    default = model / "report.html"
    from demur.deploy.web_server import run_server
    from demur.deploy.web_service import read_api_keys

    keys = read_api_keys(api_key_file, os.environ.get("DEMUR_API_KEY"))
    options = {
        "report": report or (default if default.is_file() else None),
        "max_rows": max_rows,
        "max_bytes": max_bytes,
        "allowed_hosts": (*_own_names(host), *(allow_host or ())),
        "audit": audit,
        "api_keys": keys,
    }
    build = partial(_build, model, options)
    build(lambda: False)  # so that a model that cannot be served is refused before anything starts
    address = _free_address(host, port)
    shown = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    if not ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
        asked = "with one of its keys can use this model" if keys else "can use this model; there is no password"
        note(f"anyone who can reach {shown} {asked}.")

    def started() -> None:
        say(f"Serving the model in {model}.")
        say(f"Open http://{shown} in a browser; Ctrl+C ends it.")

    run_server(build, address, started=started, workers=workers, drain=drain_seconds, log_level=log_level)
    say("Stopped.")


def _build(folder: Path, options: dict[str, Any], stopping: Callable[[], bool]) -> "FastAPI":
    """Load the model and return its application, in each worker process."""
    from demur.deploy import create_app

    notes.quiet = multiprocessing.parent_process() is not None  # the parent process has shown them
    model = load_table_model(folder, cascades=True)
    if model.experts.limits:
        note("limits of experts apply to complete tables, in demur predict; the service ignores them.")
    return create_app(model, **options, stopping=stopping)


def _own_names(host: str) -> tuple[str, ...]:
    """Return the names of this machine under which clients may reach the service."""
    if host not in ("0.0.0.0", "::"):
        return (host,)
    name, found = socket.gethostname(), []
    with suppress(OSError):  # no address is known for the name
        found = socket.getaddrinfo(name, None)
    return (name, *{str(one[4][0]) for one in found})


def _free_address(host: str, port: int) -> tuple[str, int]:
    """Return the numeric address to listen on, and a port that nothing listens on yet."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family) as listening:
            place, taken = listening.getsockname()[:2]
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen on {host}, port {port} ({error}): choose another --host or --port.") from error
    return place, taken
