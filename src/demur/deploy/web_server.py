"""Run the HTTP service with granian: worker processes, their log, and how they stop."""

import atexit
import gc
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from demur.errors import MissingExtraError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_CONNECTIONS = 4096
"""Maximum number of waiting connections, and of open connections of each worker: idle connections must not block
others."""

_HEADER_MILLISECONDS = 5000
_SECONDS_TO_STOP = 10


def run_server(
    build: Callable[[Callable[[], bool]], "ASGIApp"],
    address: tuple[str, int],
    *,
    workers: int = 1,
    drain: float = 0.0,
    log_level: str = "info",
    started: Callable[[], object] = lambda: None,
) -> None:
    """Serve an application until the process gets SIGTERM or SIGINT.

    Each worker is a process that builds the application before it opens the port. granian replaces a worker that
    ends unexpectedly.

    Parameters
    ----------
    build : callable that can be pickled
        Returns the application, given a function that says whether the service is about to stop.
    address : tuple of str and int
        Numeric address and port.
    workers : int, default 1
    drain : float, default 0
        Seconds to keep serving after SIGTERM while the service says that it is about to stop.
    log_level : {"debug", "info", "warning", "error"}
        Lowest level to log, to standard error.
    started : callable, optional
        Called once the port is open.
    """
    server = _server(address, workers=workers, log_dictconfig=_log_settings(log_level))
    multiprocessing.set_start_method("spawn", force=True)  # a fork would inherit locks of native thread pools
    stopping = multiprocessing.Event()

    def stop(*_: object) -> None:
        if drain and not stopping.is_set():
            threading.Timer(drain, server.signal_handler_interrupt).start()
        else:
            server.signal_handler_interrupt()
        stopping.set()

    def own_signals() -> None:
        signal.signal(signal.SIGTERM, stop)
        threading.Thread(target=_when_open, args=(address, started), daemon=True).start()

    server.on_startup(own_signals)
    with tempfile.TemporaryDirectory(prefix="demur-metrics-", ignore_cleanup_errors=True) as folder:
        if workers > 1:
            # where prometheus_client adds up the workers' counts
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        server.serve(target_loader=partial(_load, build, stopping), wrap_loader=False)


def _server(address: tuple[str, int], **options: Any) -> Any:
    """Return granian's server with the limits of the service."""
    try:
        from granian.constants import HTTPModes, Interfaces
        from granian.http import HTTP1Settings
        from granian.log import LogLevels
        from granian.server import Server
    except ImportError:
        raise MissingExtraError("the service needs granian: pip install demur[serve].") from None
    return Server(
        "demur",
        *address,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_CONNECTIONS,
        backpressure=_CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_MILLISECONDS),
        respawn_failed_workers=True,
        workers_kill_timeout=_SECONDS_TO_STOP,
        log_level=LogLevels.error,
        **options,
    )


def _load(build: Callable[[Callable[[], bool]], "ASGIApp"], stopping: Any) -> "ASGIApp":
    """Build the application in a worker process."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it has no types

    warnings.simplefilter("ignore")  # the parent process has shown those of the model; clients choose costs
    app = build(stopping.is_set)
    threadpool_limits(1)  # requests are small, and several workers use several cores
    gc.freeze()  # what is loaded now stays, and need not be searched for garbage
    atexit.register(os._exit, 0)  # granian's threads may still run, and abort a process that takes Python down
    return app


def _when_open(address: tuple[str, int], started: Callable[[], object]) -> None:
    while True:
        with suppress(OSError):
            socket.create_connection(address, 1).close()
            break
        time.sleep(0.05)
    started()


def _log_settings(level: str) -> dict[str, Any]:
    """Return the settings of the log for :func:`logging.config.dictConfig`."""
    line = {"format": "%(asctime)s %(levelname)s %(message)s", "datefmt": "%Y-%m-%dT%H:%M:%S%z"}
    own = {"handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": line},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"demur": {**own, "level": level.upper()}, "_granian": own},
    }
