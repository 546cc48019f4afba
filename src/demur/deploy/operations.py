"""What whoever runs the service needs: who may ask, a log that says who asked, whether it is ready, a newer model.

Each is a thin layer around the application that :func:`~demur.deploy.create_app` builds, and none of them touches an
answer.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import logging
import os
import queue
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TextIO

from demur.deploy.service_metrics import ServiceMetrics
from demur.errors import InputError, UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from demur.tabular import TableModel

__all__ = [
    "ApiKeys",
    "LogWriter",
    "Observed",
    "Operations",
    "ReloadingApp",
    "one_line",
    "path_of",
    "read_api_keys",
    "request_id_of",
    "shared_metrics",
    "write_logs",
]

_log = logging.getLogger("demur.deploy")
_access = logging.getLogger("demur.access")

PATHS = ("/", "/decide", "/health", "/ready", "/metrics", "/report", "/openapi.json")
"""The paths that are counted by name; any other is one of countless."""

_PROBES = ("/health", "/ready", "/metrics")
"""What is asked every few seconds, and belongs into the log of nobody who does not look for it."""

OPEN = ("/health", "/ready")
"""What answers without a key: whoever starts and stops the service asks it, and learns nothing of the model."""


@dataclass
class Operations:
    """What one service shares between its layers, and from one model to the next.

    Parameters
    ----------
    api_keys : collection of str
        Keys of which a request must give one; none for a service that anybody may ask.
    metrics : ServiceMetrics
        By default one of its own; one that is summed with those of the other processes where the environment variable
        ``DEMUR_METRICS_FOLDER`` names a folder that they share.
    stopping : bool
        Whether the service has been told to end.
    n_open : callable, optional
        How many requests the server has open, where it is known.

    Examples
    --------
    >>> operations = Operations(api_keys=["3yXr0TnYw2mG8kqD"])
    >>> operations.ready()
    (200, {'status': 'ready'})
    >>> operations.stop()
    >>> operations.ready()
    (503, {'status': 'stopping'})
    """

    api_keys: Collection[str] = ()
    metrics: ServiceMetrics = field(default_factory=lambda: _metrics_of_process())
    stopping: bool = False
    n_open: Callable[[], int] | None = None

    def is_alone(self) -> bool:
        """Say whether no other request is known to have come; False where nobody knows."""
        return self.n_open is not None and self.n_open() < 2

    def stop(self) -> None:
        """Say no to whoever asks whether it is ready; requests are still answered."""
        self.stopping = True
        self.metrics.ready = False

    def ready(self) -> tuple[int, dict[str, str]]:
        """Return the status and the document of ``/ready``."""
        if self.stopping:
            return 503, {"status": "stopping"}
        words = {"status": "ready"}
        if self.metrics.reload_failing:
            words["reload"] = "the newer model in the folder cannot be loaded, see the log; the one before answers"
        return 200, words


def path_of(scope: "Scope") -> str:
    """Return the path of a request as the application knows it, also where it is mounted below another.

    Examples
    --------
    >>> path_of({"path": "/decide"}), path_of({"path": "/pets/decide", "root_path": "/pets"})
    ('/decide', '/decide')
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


_METRICS_FOLDER = "DEMUR_METRICS_FOLDER"


def _metrics_of_process() -> ServiceMetrics:
    folder = os.environ.get(_METRICS_FOLDER)
    metrics = ServiceMetrics(Path(folder) if folder else None)
    metrics.share()
    return metrics


@contextlib.contextmanager
def shared_metrics() -> Iterator[Path]:
    """Let the processes that are started inside tell the sum of what they count, through a folder of theirs.

    Examples
    --------
    >>> with shared_metrics() as folder:
    ...     Operations().metrics.shared == folder
    True
    """
    before = os.environ.get(_METRICS_FOLDER)
    with tempfile.TemporaryDirectory(prefix="demur-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[_METRICS_FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[_METRICS_FOLDER]
            else:
                os.environ[_METRICS_FOLDER] = before


# Who asks -------------------------------------------------------------------------------------------------------------

_SANE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")


def request_id_of(given: bytes | None) -> str:
    r"""Return the id that a request gives, if it may stand in a log, and a new one otherwise.

    Examples
    --------
    >>> request_id_of(b"4bf92f35-77b3")
    '4bf92f35-77b3'
    >>> len(request_id_of(b"x\nINFO all is well")), len(request_id_of(None))
    (32, 32)
    """
    if given is not None and _SANE.fullmatch(given):
        return given.decode("ascii")
    return os.urandom(16).hex()


class Observed:
    """Gives each request an id, counts it, and writes it to the log ``demur.access``.

    The id is that of the header ``X-Request-ID``, where a proxy has set one, and goes back in the answer.

    Parameters
    ----------
    app : ASGI application
    metrics : ServiceMetrics
    """

    def __init__(self, app: "ASGIApp", metrics: ServiceMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        request_id = request_id_of(next((value for name, value in scope["headers"] if name == b"x-request-id"), None))
        scope["demur.request_id"] = request_id
        status = 499  # as nginx says for a client that has gone before there was an answer

        async def send_with_id(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        self.metrics.begun()
        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.ended()
            seconds = time.perf_counter() - started
            path = path_of(scope)
            self.metrics.answered(path if path in PATHS else "(other)", status, seconds)
            level = logging.DEBUG if path in _PROBES else logging.INFO
            if _access.isEnabledFor(level):
                client = scope.get("client")
                told = {
                    "id": request_id,
                    "client": client[0] if client else None,
                    "method": scope["method"],
                    "path": path,
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                }
                if LogWriter.in_use is None:
                    _access.log(level, "request", extra={"told": told})
                else:  # a record of logging's takes longer to make than many an answer
                    LogWriter.in_use.tell(level, told)


class ApiKeys:
    """Refuses requests that give none of the keys, before their bodies are read.

    A key comes as ``Authorization: Bearer KEY``, as ``X-API-Key: KEY``, or as the password of HTTP's Basic scheme under
    any name, which is what a browser asks for.

    Parameters
    ----------
    app : ASGI application
    keys : collection of str
    """

    def __init__(self, app: "ASGIApp", keys: Collection[str]) -> None:
        self.app = app
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or path_of(scope) in OPEN or self.knows(scope["headers"]):
            return await self.app(scope, receive, send)
        from starlette.responses import JSONResponse

        response = JSONResponse(
            {"error": "the request gives no key that the service knows: send Authorization: Bearer and the key."}, 401
        )
        for scheme in ('Basic realm="demur", charset="UTF-8"', "Bearer"):
            response.headers.append("WWW-Authenticate", scheme)
        return await response(scope, receive, send)

    def knows(self, headers: Collection[tuple[bytes, bytes]]) -> bool:
        """Say whether headers hold a key, in a time that does not depend on how much of it is right."""
        given = [key for name, value in headers if (key := _key_of(name, value)) is not None]
        found = False
        for key in given:
            digest = hashlib.sha256(key).digest()
            for known in self._digests:
                found |= hmac.compare_digest(digest, known)
        return found


def _key_of(name: bytes, value: bytes) -> bytes | None:
    if name == b"x-api-key":
        return value.strip()
    if name != b"authorization":
        return None
    scheme, _, rest = value.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() != b"basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return None


_KEY = re.compile(r"[\x21-\x7e]+")


def read_api_keys(path: Path | None, environment: str | None) -> tuple[str, ...]:
    """Return the keys of a file, one in each line, or the one that the environment gives.

    Parameters
    ----------
    path : path or None
        Lines that begin with # and empty ones do not count.
    environment : str or None
        For where there is no file.

    Raises
    ------
    InputError
        If the file holds no key, or one that no header can carry. No message shows a key.

    Examples
    --------
    >>> read_api_keys(None, "s3cret-s3cret-s3cret")
    ('s3cret-s3cret-s3cret',)
    >>> read_api_keys(None, " ")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: DEMUR_API_KEY holds no key: write one into it, or leave it out.
    """
    if path is None and environment is None:
        return ()
    where = "DEMUR_API_KEY" if path is None else str(path)
    try:
        text = str(environment) if path is None else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where} is not text: write one key into each line.") from None
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise InputError(f"{where} holds no key: write one into it, or leave it out.")
    for number, line in enumerate(lines, 1):
        if line in keys and not _KEY.fullmatch(line):
            raise InputError(f"{where}, line {number}, holds a key with spaces or other characters than ASCII's.")
    return keys


# The log --------------------------------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def one_line(text: str) -> str:
    r"""Return a text that cannot begin a line of its own, nor move a terminal's cursor.

    Examples
    --------
    >>> one_line("/x\nINFO \x1b[2J")
    '/x\\nINFO \\x1b[2J'
    """
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


class _Formatter(logging.Formatter):
    """One line for each record, in words or in JSON; a traceback follows indented, or inside the object."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = getattr(record, "told", {})
        trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info))
        return self.line(record.created, record.levelname, record.getMessage(), told, trace)

    def line(self, created: float, level: str, message: str, told: dict[str, object], trace: str = "") -> str:
        """Write one record."""
        moment = f"{datetime.fromtimestamp(created, UTC):%Y-%m-%dT%H:%M:%S}.{int(created * 1000) % 1000:03}Z"
        if self.as_json:
            document = {"time": moment, "level": level.lower(), "message": message, **told}
            return json.dumps(document | ({"traceback": trace} if trace else {}), default=str)
        values = "".join([f" {name}={_value(value)}" for name, value in told.items()])
        lines = [f"{moment} {level} {one_line(message)}{values}"]
        lines += [f"    | {one_line(line)}" for line in trace.splitlines()]
        return "\n".join(lines)


def _value(value: object) -> str:
    """Write a value: text that a request has brought in quotes, so that it cannot look like another field."""
    if value is None or isinstance(value, int | float):
        return "-" if value is None else str(value)
    text = str(value)
    return text if _SANE.fullmatch(text.encode("utf-8", "replace")) else json.dumps(text)


class LogWriter(logging.Handler):
    """Writes the log in a thread of its own, so that no request ever waits for whoever reads it.

    Where lines come faster than they can be written, or nobody reads them, those too many are dropped and counted.

    Parameters
    ----------
    stream : text stream
    as_json : bool
    metrics : ServiceMetrics
    """

    MOST_WAITING = 10_000
    _AT_ONCE = 100
    _GATHERED = 0.02
    """Seconds for which lines are gathered: to wake the thread takes longer than to write a line."""

    in_use: "ClassVar[LogWriter | None]" = None
    """The one that requests are told to."""

    def __init__(self, stream: TextIO, *, as_json: bool, metrics: ServiceMetrics) -> None:
        super().__init__()
        self.stream, self.metrics = stream, metrics
        self._format = _Formatter(as_json)
        self.setFormatter(self._format)
        self._waiting: queue.SimpleQueue[str | tuple[float, int, dict[str, object]] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write, name="demur-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; it is formatted here, while what it speaks of is still as it was."""
        try:
            self._put(self.format(record))
        except Exception:  # as logging's own handlers do: a log must not bring down what it tells of
            self.handleError(record)

    def tell(self, level: int, told: dict[str, object]) -> None:
        """Queue what there is to tell of a request; it becomes a line in the writer's own thread."""
        self._put((time.time(), level, told))

    def _put(self, line: str | tuple[float, int, dict[str, object]]) -> None:
        if self._waiting.qsize() >= self.MOST_WAITING:
            self.metrics.dropped()
        else:
            self._waiting.put(line)

    def close(self, seconds: float = 2.0) -> None:
        """Write what waits, but not for longer than this."""
        if LogWriter.in_use is self:
            LogWriter.in_use = None
        self._ending.set()
        self._waiting.put(None)
        self._thread.join(seconds)
        super().close()

    def _write(self) -> None:
        ends = False
        while not ends:
            waiting = [self._waiting.get()]
            if self._waiting.empty():
                self._ending.wait(self._GATHERED)
            while len(waiting) < self._AT_ONCE and not self._waiting.empty():
                waiting.append(self._waiting.get())
            ends = None in waiting
            lines = [self._written(one) for one in waiting if one is not None]
            try:
                self.stream.write("".join(lines))
                self.stream.flush()
            except (OSError, ValueError):  # the reader has gone, or the stream is closed
                self.metrics.dropped(len(lines))

    def _written(self, line: str | tuple[float, int, dict[str, object]]) -> str:
        if isinstance(line, str):
            return f"{line}\n"
        created, level, told = line
        return f"{self._format.line(created, logging.getLevelName(level), 'request', told)}\n"


def write_logs(
    level: str, *, metrics: ServiceMetrics, as_json: bool = False, stream: TextIO | None = None
) -> LogWriter:
    """Let demur and uvicorn write their log, from a level on; the handler is to be closed in the end.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
    metrics : ServiceMetrics
        Counts the lines that were dropped.
    as_json : bool, default False
        One object in each line instead of words.
    stream : text stream, optional
        Standard error by default.
    """
    handler = LogWriter.in_use = LogWriter(stream or sys.stderr, as_json=as_json, metrics=metrics)
    for name in ("demur", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        # what uvicorn says of itself when all is well is said by the command already
        logger.setLevel(level.upper() if name == "demur" or level == "debug" else max(logging.WARNING, _level(level)))
    return handler


def _level(level: str) -> int:
    return int(logging.getLevelNamesMapping()[level.upper()])


# A newer model --------------------------------------------------------------------------------------------------------


class ReloadingApp:
    """The application of the model in a folder: of the newest that can be loaded.

    A request is answered to its end by the application that it came to, so that none is lost when a newer one takes
    over. A newer model that cannot be loaded is said in the log, in ``/ready`` and in the metrics, and the one before
    goes on.

    Parameters
    ----------
    folder : path
        Of the model, which :func:`demur.save` replaces in one step.
    load : callable
        From the folder to the model.
    build : callable
        From the model to its application.
    operations : Operations
    seconds : float, default 2
        How often to look.

    Attributes
    ----------
    app, model
        Those that answer now.

    Examples
    --------
    >>> import tempfile
    >>> import demur
    >>> folder, operations = Path(tempfile.mkdtemp(), "model"), Operations()
    >>> demur.save(demur.Chow(0.2), folder)
    >>> service = ReloadingApp(folder, demur.load, repr, operations)  # build is create_app, where there is a TableModel
    >>> demur.save(demur.Chow(0.1), folder, overwrite=True)
    >>> service.look(), service.app
    (True, 'Chow(cost=0.1)')
    """

    def __init__(
        self,
        folder: Path,
        load: "Callable[[Path], TableModel]",
        build: "Callable[[TableModel], ASGIApp]",
        operations: Operations,
        *,
        seconds: float = 2.0,
    ) -> None:
        self.folder, self.load, self.build, self.operations = folder, load, build, operations
        self.seconds = seconds
        self._seen = _signature(folder)
        self.model = load(folder)
        self.app = build(self.model)
        self._attempts = 0
        self._ended = threading.Event()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self.app(scope, receive, send)

    def watch(self) -> None:
        """Look at the folder from now on, in a thread."""
        threading.Thread(target=self._watch, name="demur-reload", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self.seconds):
            self.look()

    _ATTEMPTS = 3
    """How often a model is tried that cannot be loaded: it may be on its way still."""

    def look(self) -> bool:
        """Load the model if the folder holds another than before, and say whether one has taken over."""
        found = _signature(self.folder)
        if found is None:
            return False  # it is being replaced, or was removed: what is loaded answers
        if found != self._seen:
            self._seen, self._attempts = found, 0
        elif not self._attempts or self._attempts >= self._ATTEMPTS:
            return False
        try:
            model = self.load(self.folder)
            app = self.build(model)
        except Exception as error:  # whatever is wrong with the newer model, the older one answers
            self._attempts += 1
            if self._attempts in (1, self._ATTEMPTS):
                words = one_line(str(error)) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                _log.error("the newer model in %s cannot be loaded, and the one before answers: %s", self.folder, words)
            if self._attempts == 1:
                self.operations.metrics.reloaded("failed")
            return False
        self.app, self.model, self._attempts = app, model, 0
        self.operations.metrics.reloaded("loaded")
        _log.info("loaded the newer model in %s", self.folder)
        return True


def _signature(folder: Path) -> tuple[object, ...] | None:
    """Return what tells one model in a folder from another, without reading it; None where there is none."""
    try:
        stats = [(folder / name).stat() for name in ("model.json", "model.skops")]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)
