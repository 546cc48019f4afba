"""``demur serve``: a model as a small HTTP service."""

import contextlib
import ipaddress
import socket
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.console import CallError, console, load_table_model, notes, warnings_as_notes, wrong_call_if_refused

if TYPE_CHECKING:
    from fastapi import FastAPI

    from demur.tabular import TableModel

__all__ = ["serve"]


def serve(
    model: Annotated[Path, typer.Argument(help="The folder that demur fit wrote.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen at; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one.")] = 8000,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="The most rows of one request.")] = 10_000,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="The largest request.")] = 5_000_000,
    report: Annotated[
        Path | None, typer.Option(help="A report to show at /report. [default: report.html in the folder, if any]")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name under which it may be asked, behind a proxy say; * for any."),
    ] = None,
) -> None:
    """Answer HTTP requests with a model, until Ctrl+C: POST /decide for programs, a page at / for people.

    It listens on this machine only, unless told otherwise.

    Example: demur serve model/
    """
    if report is not None and not report.is_file():
        raise CallError(f"there is no report {report}: make it with demur evaluate --report.")
    with wrong_call_if_refused(), warnings_as_notes():
        loaded = load_table_model(model)
        app = _app(loaded, report or model / "report.html", max_rows, max_bytes, [host, *(allow_host or ())])
        listening = _listen(host, port)
    place, taken = listening.getsockname()[:2]
    shown = f"[{place}]" if ":" in place else place
    name, n_classes = loaded.facts.get("model", "a model"), len(loaded.classes)
    console.print(
        f"Serving {name} for {loaded.target!r}, {n_classes:,} classes, from {model}.", markup=False, soft_wrap=True
    )
    console.print(f"Open http://{shown}:{taken} in a browser; Ctrl+C ends it.", markup=False, soft_wrap=True)
    if loaded.experts.limits:
        notes.print(
            "Note: the limits on what experts get hold for whole tables, in demur predict; here each row is decided by "
            "itself, without them.",
            markup=False,
        )
    if not ipaddress.ip_address(place.partition("%")[0]).is_loopback:
        notes.print(f"Note: whoever reaches {shown}:{taken} can ask this model; there is no password.", markup=False)
    _run(app, listening)
    console.print("Stopped.")


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is said about it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise CallError(f"there is no address {host!r} to listen at; 127.0.0.1 is this machine.") from error
    listening = socket.socket(family, kind, protocol)
    # without it, the port stays taken for a minute after the service ends
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise CallError(f"cannot listen at {host}, port {port}: {reason}; choose another with --port.") from error
    return listening


def _app(model: "TableModel", report: Path, max_rows: int, max_bytes: int, hosts: list[str]) -> "FastAPI":
    from demur.deploy import create_app

    shown = report if report.is_file() else None
    return create_app(model, report=shown, max_rows=max_rows, max_bytes=max_bytes, allowed_hosts=hosts)


_MOST_CONNECTIONS = 1000
_SECONDS_TO_STOP = 10


def _run(app: "FastAPI", listening: socket.socket) -> None:
    """Serve until the process is told to stop; requests under way have some seconds to end then."""
    import uvicorn

    from demur.costs import CostWarning

    # whoever asks names the cost and sees it in the answer; the service's log is no place to warn them
    warnings.filterwarnings("ignore", category=CostWarning)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_STOP,
        )
    )
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
