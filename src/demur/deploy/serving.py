"""How the service runs: connections that must not keep others waiting, several processes, and how it stops.

uvicorn waits for ever for the head of a request. Here a connection has some seconds for it; where there are too many,
the one that has waited longest without a whole request makes way for the new one. Told to stop, the service answers
what it has got, and what arrives within a moment, and ends within :data:`SECONDS_TO_STOP`.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

    from demur.deploy.operations import Operations

__all__ = ["SECONDS_TO_STOP", "limited_protocol", "run_app", "run_workers"]

_log = logging.getLogger("demur.deploy")

SECONDS_TO_STOP = 10
"""What requests under way have to end, once the service is told to."""

_SECONDS_FOR_BODY = 3.0
"""What a body that has not arrived whole has, once the service is told to stop."""

_SECONDS_FOR_HEAD = 10.0
_MOST_CONNECTIONS = 512
_MOMENT = 0.2
"""How long an idle connection stays open when the service stops: a request may be on its way."""

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def limited_protocol(
    seconds_for_head: float = _SECONDS_FOR_HEAD, most_connections: int = _MOST_CONNECTIONS
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol for HTTP with limits to what a connection may take.

    Parameters
    ----------
    seconds_for_head : float, default 10
        From the beginning of a connection, or from the first byte of a later request, until its head is whole.
    most_connections : int, default 512
        With more, the one that has waited longest without a whole request is closed.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class LimitedProtocol(H11Protocol):
        """HTTP for clients who may mean no good."""

        _slow: asyncio.TimerHandle | None = None
        _stopping = False
        since = math.inf

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # it gets no other kind
            joining: Any = _Joining(transport)
            super().connection_made(joining)
            self.since = self.loop.time()
            self._wait_for_head()
            is_open: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
            if len(is_open) > most_connections:
                waiting = [one for one in is_open if getattr(one, "is_waiting", False)]
                oldest: Any = min(waiting, key=lambda one: one.since, default=self)
                oldest.give_up(_TOO_MANY)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._has_head:
                self._head_came()
                if self._stopping:
                    self.cycle.keep_alive = False
            elif self._slow is None and not self.transport.is_closing():
                self.since = self.loop.time()
                self._wait_for_head()

        def on_response_complete(self) -> None:
            self.since = self.loop.time()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """Stop as soon as what has come is answered."""
            self._stopping = True
            if not self._has_head:
                self.loop.call_later(_MOMENT, self._end)
                return
            super().shutdown()
            if self.cycle.more_body:
                self.loop.call_later(_SECONDS_FOR_BODY, self._end)

        @property
        def is_waiting(self) -> bool:
            """Whether the next request has not arrived whole."""
            return not self._has_head or bool(self.cycle.more_body)

        def give_up(self, answer: bytes) -> None:
            """Close the connection, with an answer where none has begun."""
            if self.transport.is_closing():
                return
            if not (self._has_head and self.cycle.response_started):
                self.transport.write(answer)
            self.transport.close()

        @property
        def _has_head(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _wait_for_head(self) -> None:
            self._slow = self.loop.call_later(seconds_for_head, self.give_up, _TOO_SLOW)

        def _head_came(self) -> None:
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None

        def _end(self) -> None:
            if not self.transport.is_closing() and self.is_waiting:
                self.transport.close()

    return LimitedProtocol


class _Joining:
    """A transport that sends the head of an answer together with what follows, where uvicorn writes it by itself.

    To send takes longer than to write most answers. The head never waits for long: the end of an answer is a write
    too, and to close is to send first.

    Parameters
    ----------
    transport : asyncio.Transport
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send what there is, unless it is a head."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 2"):
            self._head = data
            return
        self._transport.write(data)

    def close(self) -> None:
        """Send what there is, and close."""
        if self._head:
            self.write(b"")
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def run_app(app: "ASGIApp", listening: socket.socket, operations: "Operations", *, drain: float = 0.0) -> None:
    """Serve until the process is told to stop; requests under way have some seconds to end then.

    Parameters
    ----------
    app : ASGI application
    listening : socket
    operations : Operations
    drain : float, default 0
        For how long to go on after that, with ``/ready`` saying no.
    """
    import uvicorn

    from demur.costs import CostWarning

    class Server(uvicorn.Server):
        """Says that it is not ready before it stops, and goes on for as long as whoever asks may need to notice."""

        stop_at = math.inf

        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            first = not operations.stopping
            operations.stop()
            if first and drain:
                self.stop_at = time.monotonic() + drain
            elif self.should_exit and sig == signal.SIGINT:
                self.force_exit = True
            else:  # uvicorn's own would raise the signal again in the end, before the log is written
                self.should_exit = True

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or time.monotonic() >= self.stop_at

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await asyncio.sleep(_MOMENT)  # connections that have been made already are taken, and then no more
            await super().shutdown(sockets)

    # whoever asks names the cost and sees it in the answer; the service's log is no place to warn them
    warnings.filterwarnings("ignore", category=CostWarning)
    config = uvicorn.Config(
        app,
        http=limited_protocol(),
        log_config=None,  # what is logged, and how, is settled already
        access_log=False,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
    )
    server = Server(config)
    operations.n_open = lambda: len(server.server_state.tasks)
    with contextlib.suppress(KeyboardInterrupt), _signals_end_here():
        server.run(sockets=[listening])


@contextlib.contextmanager
def _signals_end_here() -> Iterator[None]:
    """Ignore the signal to stop that uvicorn raises once more when it has stopped: the process then ends well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Several processes ----------------------------------------------------------------------------------------------------


def run_workers(
    n_workers: int,
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    listening: socket.socket,
    *,
    drain: float = 0.0,
) -> None:
    """Run so many processes that take connections from one socket, until this one is told to stop.

    A process that ends by itself is replaced, at most once a second.

    Parameters
    ----------
    n_workers : int
    work : function of a module
        What a process runs: it is given ``arguments`` and the socket, and stops when it is told to.
    arguments : tuple
        What can be pickled.
    listening : socket
    drain : float, default 0
        For how long the processes go on once they are told to stop.
    """
    context = multiprocessing.get_context("spawn")
    stop = threading.Event()
    before = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGINT, signal.SIGTERM)}

    def started() -> Any:
        process = context.Process(target=work, args=(*arguments, listening))
        process.start()
        return process

    processes = [started() for _ in range(n_workers)]
    try:
        while not stop.wait(1.0):
            for place, process in enumerate(processes):
                if not process.is_alive() and not stop.is_set():
                    _log.error("a worker ended with exit code %s, and another takes its place", process.exitcode)
                    processes[place] = started()
    finally:
        listening.close()
        _end(processes, drain)
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _end(processes: list[Any], drain: float) -> None:
    for process in processes:
        if process.is_alive():
            os.kill(process.pid, signal.SIGTERM)
    ends = time.monotonic() + drain + SECONDS_TO_STOP + _SECONDS_FOR_BODY
    for process in processes:
        process.join(max(ends - time.monotonic(), 0.1))
        if process.is_alive():
            process.kill()
            process.join()
    sys.stdout.flush()
