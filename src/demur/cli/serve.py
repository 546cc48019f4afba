"""``demur serve``: a model as a small HTTP service."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

    from demur.deploy.operations import Operations, ReloadingApp
    from demur.tabular import TableModel

__all__ = ["LogLevel", "serve"]

_SHORTEST_KEY = 16


class LogLevel(StrEnum):
    """From which level on to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    model: ModelFolder,
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
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="A file of keys, one in each line, of which a request must give one. [or: $DEMUR_API_KEY]"),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Take over the model that is saved to the folder later, without a pause.")
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="What to log; info writes a line for each request.")
    ] = LogLevel.INFO,
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Write the log as JSON, an object in each line.")
    ] = False,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0, help="How long to go on after SIGTERM, with /ready saying no, before it takes no more."),
    ] = 0.0,
    audit: Annotated[
        float,
        typer.Option("--audit", help="The share of answered rows to draw for a review; each answer then says why."),
    ] = 0.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes that answer, one per core.")] = 1,
) -> None:
    """Answer HTTP requests with a model, until Ctrl+C: POST /decide for programs, a page at / for people.

    It listens on this machine only, unless told otherwise.

    Example: demur serve model/
    """
    check_share("--audit", audit, one=True)
    if report is not None and not report.is_file():
        raise CallError(f"there is no report {report}: make it with demur evaluate --report.")
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.deploy.operations import read_api_keys

        keys = tuple(read_api_keys(api_key_file, os.environ.get("DEMUR_API_KEY")))
        hosts = (host, *(allow_host or ()))
        page = report or model / "report.html"
        served = _Served(
            model, page, max_rows, max_bytes, hosts, keys, reload, log_level.value, log_json, drain_seconds, audit
        )
        service = served.service()
        listening = _listen(host, port)
    loaded = service.model
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
        asked = "with one of its keys can ask this model" if keys else "can ask this model; there is no password"
        notes.print(f"Note: whoever reaches {shown}:{taken} {asked}.", markup=False)
    if any(len(key) < _SHORTEST_KEY for key in keys):
        notes.print(f"Note: a key of fewer than {_SHORTEST_KEY} characters can be guessed: make a longer one.")
    if workers == 1:
        service.run(listening)
    else:
        from demur.deploy.operations import shared_metrics
        from demur.deploy.serving import run_workers

        with shared_metrics():
            run_workers(workers, _work, (served,), listening, drain=drain_seconds)
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


@dataclass(frozen=True)
class _Served:
    """What a process must know to serve."""

    folder: Path
    report: Path
    max_rows: int
    max_bytes: int
    hosts: tuple[str, ...]
    keys: tuple[str, ...]
    reload: bool
    log_level: str
    log_json: bool
    drain: float
    audit: float

    def service(self) -> "_Service":
        """Load the model, and return what serves it."""
        from demur.deploy.operations import Operations, ReloadingApp

        operations = Operations(self.keys)

        def app_of(model: "TableModel") -> "FastAPI":
            return self._app(model, operations)

        if self.reload:
            app = ReloadingApp(self.folder, load_table_model, app_of, operations)
            return _Service(self, app, app.model, operations)
        model = load_table_model(self.folder)
        return _Service(self, app_of(model), model, operations)

    def _app(self, model: "TableModel", operations: "Operations") -> "FastAPI":
        from demur.deploy import create_app

        report = self.report if self.report.is_file() else None
        return create_app(
            model,
            report=report,
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            allowed_hosts=self.hosts,
            audit=self.audit,
            operations=operations,
        )


@dataclass(frozen=True)
class _Service:
    """A model in service."""

    served: _Served
    app: "FastAPI | ReloadingApp"
    model: "TableModel"
    operations: "Operations"

    def run(self, listening: socket.socket) -> None:
        """Answer until the process is told to stop."""
        from demur.deploy.operations import ReloadingApp, write_logs
        from demur.deploy.serving import run_app

        log = write_logs(self.served.log_level, metrics=self.operations.metrics, as_json=self.served.log_json)
        if isinstance(self.app, ReloadingApp):
            self.app.watch()
        try:
            run_app(self.app, listening, self.operations, drain=self.served.drain)
        finally:
            log.close()


def _work(served: _Served, listening: socket.socket) -> None:
    """Serve in a process of its own, which others of its kind share a socket with."""
    served.service().run(listening)
