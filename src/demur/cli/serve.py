"""``demur serve``: a model as a small HTTP service."""

import ipaddress
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.console import (
    CallError,
    check_share,
    console,
    load_table_model,
    notes,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import ModelFolder

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["LogLevel", "serve"]

_SHORTEST_KEY = 16


class LogLevel(StrEnum):
    """Lowest level to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    model: ModelFolder,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Maximum number of rows in a request.")] = 10_000,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", min=1, help="Maximum size of a request in bytes.")
    ] = 5_000_000,
    report: Annotated[
        Path | None,
        typer.Option(help="HTML report to serve at /report.", show_default="report.html in the folder, if any"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Host name that clients may use, e.g. behind a proxy; * for any."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File of API keys, one per line; or set DEMUR_API_KEY. Requests must send one."),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Lowest level to log; info logs every request.")
    ] = LogLevel.INFO,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON objects, one per line.")] = False,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to keep serving after SIGTERM while /ready returns 503.")
    ] = 0.0,
    audit: Annotated[
        float, typer.Option("--audit", help="Share of answered rows to draw for review, marked in the field why.")
    ] = 0.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Number of worker processes.")] = 1,
) -> None:
    """Serve a model over HTTP until Ctrl+C: POST /decide for programs, a page at / for people.

    By default it listens on this machine only.

    Example: demur serve model/
    """
    check_share("--audit", audit, one=True)
    if report is not None and not report.is_file():
        raise CallError(f"there is no report {report}: make it with demur evaluate --report.")
    options = {
        "report": report or model / "report.html",
        "max_rows": max_rows,
        "max_bytes": max_bytes,
        "allowed_hosts": (*_own_names(host), *(allow_host or ())),
        "audit": audit,
    }
    with wrong_call_if_refused():
        from demur.deploy.web_server import log_settings
        from demur.deploy.web_service import read_api_keys

        options["api_keys"] = read_api_keys(api_key_file, os.environ.get("DEMUR_API_KEY"))
        log = log_settings(log_level.value, as_json=log_json)
        _run(partial(_build, model, options), (host, port), workers=workers, drain=drain_seconds, log=log)
    console.print("Stopped.")


def _run(build: "partial[FastAPI]", place: tuple[str, int], **options: Any) -> None:
    """Load the model once, so that one that cannot be served is refused before anything starts, and serve it."""
    from demur.deploy.web_server import run_server

    begun = time.monotonic()
    with warnings_as_notes():
        build(lambda: False)
    seconds = time.monotonic() - begun
    address = _free_address(*place)
    shown = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    folder, served = build.args
    _warn(address[0], shown, served["api_keys"])
    run_server(build, address, seconds_to_build=seconds, started=partial(_say_started, folder, shown), **options)


def _warn(address: str, shown: str, keys: Collection[str]) -> None:
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        asked = "with one of its keys can use this model" if keys else "can use this model; there is no password"
        notes.print(f"Note: whoever reaches {shown} {asked}.", markup=False)
    if any(len(key) < _SHORTEST_KEY for key in keys):
        notes.print(f"Note: a key of fewer than {_SHORTEST_KEY} characters can be guessed: make a longer one.")


def _say_started(folder: Path, shown: str) -> None:
    console.print(f"Serving the model in {folder}.", markup=False, soft_wrap=True)
    console.print(f"Open http://{shown} in a browser; Ctrl+C ends it.", markup=False, soft_wrap=True)


def _build(folder: Path, options: dict[str, Any], stopping: Callable[[], bool]) -> "FastAPI":
    """Load the model and return its application, in each worker process."""
    from demur.deploy import create_app

    notes.quiet = multiprocessing.parent_process() is not None  # the parent process has shown them
    model = load_table_model(folder)
    if model.experts.limits:
        notes.print(
            "Note: the limits on how many rows experts get hold for whole tables, in demur predict; the service "
            "decides each row without them.",
            markup=False,
        )
    report = options["report"] if options["report"].is_file() else None
    return create_app(model, **{**options, "report": report, "stopping": stopping})


def _own_names(host: str) -> tuple[str, ...]:
    """Return the names of this machine under which clients may reach the service."""
    if host not in ("0.0.0.0", "::"):
        return (host,)
    name = socket.gethostname()
    return (name, *{str(found[4][0]) for found in socket.getaddrinfo(name, None)})


def _free_address(host: str, port: int) -> tuple[str, int]:
    """Return the numeric address to listen on, and a port that nothing listens on yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise CallError(f"there is no address {host!r} to listen on; 127.0.0.1 is this machine.") from error
    with socket.socket(family, kind, protocol) as listening:
        # without it, the port stays taken for a minute after the service ends
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CallError(f"cannot listen on {host}, port {port}: {reason}; choose another with --port.") from error
        place, taken = listening.getsockname()[:2]
    return place, taken
