"""The HTTP service: which address answers what, how much it takes from whom, and the page to try the model."""

import asyncio
import ipaddress
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from demur._version import __version__
from demur.deploy.decider import Decider, Lanes
from demur.deploy.operations import OPEN, ApiKeys, Observed, Operations, path_of
from demur.deploy.service_metrics import CONTENT_TYPE
from demur.deploy.service_schema import RefusedError, answer_type, health_type, ready_type, refusal_type
from demur.errors import InputError, MissingExtraError
from demur.tabular import TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.html_pages import (
    SECURITY_HEADERS,
    asset,
    content_policy,
    embedded_json,
    own_parts,
    page_environment,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["create_app", "report_headers", "try_page"]


_log = logging.getLogger("demur.deploy")

_REFUSALS = {
    400: "The body is not JSON.",
    401: "The service takes requests with a key only.",
    408: "The body did not arrive in time.",
    413: "The body or the number of rows is too large.",
    415: "The body is not sent as application/json.",
    421: "The service is not known under this name.",
    422: "The request is JSON, but not one for this model.",
    500: "Something unforeseen; it is in the service's log.",
    503: "The service is busy; try again in a second.",
}


def create_app(
    model: TableModel,
    *,
    report: str | Path | None = None,
    max_rows: int = 10_000,
    max_bytes: int = 5_000_000,
    max_seconds: float = 30.0,
    allowed_hosts: Collection[str] = (),
    audit: float = 0.0,
    operations: Operations | None = None,
) -> "FastAPI":
    """Return a web application that decides with a model.

    ``POST /decide`` takes ``{"rows": [{...}, ...], "cost": 0.1}`` or ``{"row": {...}}``, with ``"proba": true`` for the
    probability of each class; ``/health`` tells that it runs, ``/ready`` whether requests are welcome, ``/metrics``
    what it has counted; ``/openapi.json`` describes the columns, ``/`` is a page to try it and ``/report`` the report,
    if there is one. It answers in the words of :meth:`TableModel.answers`, with the same decisions to the last bit.

    Parameters
    ----------
    model : TableModel
    report : path, optional
        An HTML file to show at ``/report``.
    max_rows : int, default 10000
        The most rows of one request.
    max_bytes : int, default 5000000
        The largest body of one request.
    max_seconds : float, default 30
        The longest time that a body may take to arrive.
    allowed_hosts : names, optional
        Names under which the service may be asked, beside ``localhost`` and bare addresses; ``"*"`` for any. A page
        of a stranger's could otherwise point a name of its own at this machine, and ask from a visitor's browser.
    audit : float, default 0
        The share of answered rows to draw for a review. Above 0, each decision has a field ``why``: ``"declined"``,
        ``"audit"``, or null where the row is not to be reviewed.
    operations : Operations, optional
        Who may ask, and what is counted; it outlives the model where another takes its place.

    Raises
    ------
    ImportError
        Without FastAPI or Jinja2: ``pip install demur[serve]``.

    Examples
    --------
    >>> import asyncio, httpx
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> transport = httpx.ASGITransport(create_app(fit_table(table, "y", model="lr")))
    >>> async def ask(question):
    ...     async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
    ...         return (await client.post("/decide", json=question)).json()
    >>> [one["prediction"] for one in asyncio.run(ask({"row": {"size": 1}}))["decisions"]]
    ['a']
    >>> asyncio.run(ask({"row": {"sise": 1}}))["error"]
    "row 1 does not have the columns that the model was fitted on: missing 'size'; extra 'sise'; give null ..."
    """
    try:
        import uvicorn  # noqa: F401 # not needed here, but to serve what is returned: one message for the one extra
        from fastapi import Body
        from starlette.exceptions import HTTPException
        from starlette.responses import JSONResponse, PlainTextResponse, Response
    except ImportError:
        raise MissingExtraError("the service needs FastAPI: pip install demur[serve].") from None
    for name, limit in (("max_rows", max_rows), ("max_bytes", max_bytes)):
        if limit < 1:
            raise InputError(f"{name} must be at least 1, got {limit!r}.")
    operations = operations or Operations()
    metrics = operations.metrics
    decider = Decider(model, max_rows, metrics, audit=audit)
    metrics.serves(decider.about["name"], decider.about["target"], model.classes.tolist())
    started = time.monotonic()
    question_type: Any = Annotated[decider.requests.type, Body()]

    def decide(question: question_type) -> None:
        """For its types alone: what stands in front reads, checks and answers."""

    async def health() -> Any:
        return {
            "status": "ok",
            "version": __version__,
            **{"model": decider.about["name"], "target": decider.about["target"]},
            "n_classes": len(model.classes),
            "uptime_seconds": round(time.monotonic() - started, 3),
        }

    async def ready() -> Any:
        status, words = operations.ready()
        return JSONResponse(words, status)

    async def told() -> Any:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    app = _application_type()(
        title=f"demur: {model.target}",
        version=__version__,
        description="A classifier that declines to answer when answering would cost more than asking.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _say_where},
    )
    app.add_api_route(
        "/decide",
        decide,
        methods=["POST"],
        summary=f"Decide {model.target} for one row or many",
        description=f"At most {max_rows:,} rows and {max_bytes:,} bytes.",
        response_model=answer_type(model, audits=audit > 0),
        response_description="One decision for each row, in order.",
        responses={status: {"model": refusal_type(), "description": words} for status, words in _REFUSALS.items()},
    )
    _add_page(app, "/health", health, "Whether the service runs", health_type())
    _add_page(app, "/ready", ready, "Whether requests are welcome", ready_type(), {503: "It is about to stop."})
    app.add_api_route("/metrics", told, summary="What it has counted, for Prometheus", response_class=PlainTextResponse)
    app.add_api_route("/metrics", told, methods=["HEAD"], include_in_schema=False)
    _add_page(app, "/", *_fixed(*try_page(model, has_report=report is not None), "A page to try the model"))
    if report is not None:
        page = Path(report).read_text(encoding="utf-8")
        _add_page(app, "/report", *_fixed(page, report_headers(page), "How good the model is"))
    app.add_middleware(_Deciding, lanes=Lanes(decider, operations.is_alone), inflow=_Inflow(max_bytes, max_seconds))
    if operations.api_keys:
        _tell_of_keys(app)
        app.add_middleware(ApiKeys, keys=operations.api_keys)
    app.add_middleware(_KnownHosts, allowed=frozenset(map(str.lower, allowed_hosts)))
    app.add_middleware(Observed, metrics=metrics)  # the outermost, so that it sees what the others refuse
    app.pass_by()
    served: FastAPI = app
    return served


def _application_type() -> Any:
    """Return FastAPI's application with a short way to ``POST /decide``, which needs nothing that FastAPI does."""
    from fastapi import FastAPI

    class Application(FastAPI):
        """FastAPI's, but for what :class:`_Deciding` answers."""

        _layers: "ASGIApp | None" = None
        _n_own = 0

        def pass_by(self) -> None:
            """Let requests to decide go straight to the layers that there are now, unless others come around them."""
            self._n_own = len(self.user_middleware)
            self._layers = super().__call__
            for layer, options, named in reversed(self.user_middleware):
                self._layers = layer(self._layers, *options, **named)

        async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
            is_plain = len(self.user_middleware) == self._n_own and "opentelemetry.sdk" not in sys.modules
            if is_plain and self._layers is not None and _is_question(scope):
                await self._layers(scope, receive, send)
            else:
                await super().__call__(scope, receive, send)

    return Application


class _Inflow:
    """Reads bodies: none too large, none too slow, and not too much at once of those that have not ended yet."""

    _MOST_AT_ONCE = 1 << 26

    def __init__(self, max_bytes: int, max_seconds: float) -> None:
        self.max_bytes, self.max_seconds = max_bytes, max_seconds
        self.unfinished = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: "Receive") -> bytes:
        """Return the body, and stop reading as soon as it is too large, whatever its length is said to be."""
        _check_content_type(headers.get(b"content-type", b"").decode("latin-1"))
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and len(announced) < 20 and int(announced) > self.max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.max_seconds):
                return await self._read(receive)
        except TimeoutError:
            problem = f"the body did not arrive within {self.max_seconds:g} seconds"
            raise RefusedError(f"{problem}: send less at once, or over a faster connection", 408) from None

    async def _read(self, receive: "Receive") -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            whole: bytes = message.get("body", b"")
            if len(whole) > self.max_bytes:
                raise self._too_large()
            return whole
        body = bytearray()
        try:
            while message["type"] == "http.request":
                chunk = message.get("body", b"")
                body += chunk
                self.unfinished += len(chunk)
                if len(body) > self.max_bytes:
                    raise self._too_large()
                if self.unfinished > max(self._MOST_AT_ONCE, 2 * self.max_bytes):
                    raise RefusedError("the service is busy with unfinished requests: try again in a second", 503)
                if not message.get("more_body", False):
                    return bytes(body)
                message = await receive()
            raise RefusedError("the connection ended before the body did", 400)
        finally:
            self.unfinished -= len(body)

    def _too_large(self) -> RefusedError:
        return RefusedError(f"the body has more than {self.max_bytes:,} bytes: send the rows in several requests", 413)


def _check_content_type(content_type: str) -> None:
    kind, _, parameters = content_type.partition(";")
    charset = parameters.strip().lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        got = f"{kind}; {charset}" if charset else kind or "nothing"
        raise RefusedError(f"the content type is {got[:60]!r}: send JSON, with Content-Type: application/json", 415)


class _Deciding:
    """Answers ``POST /decide``, in front of FastAPI, which would read a body of any size and takes longer.

    FastAPI has the route too, for its document and for whoever comes with another method.
    """

    def __init__(self, app: "ASGIApp", lanes: Lanes, inflow: _Inflow) -> None:
        self.app, self.lanes, self.inflow = app, lanes, inflow

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if not _is_question(scope):
            await self.app(scope, receive, send)
            return
        status, headers = 200, [_JSON]
        try:
            answer = await self.lanes.run(await self.inflow.read(dict(scope["headers"]), receive))
        except RefusedError as error:
            status, answer = error.status, _said(str(error))
            headers += [(b"retry-after", b"1")] if status == 503 else []
        except Exception:  # whatever a model may raise: the service goes on, and its log tells
            _log.exception("a request failed", extra={"told": {"id": scope.get("demur.request_id")}})
            status, answer = 500, _said("the service failed on this request; its log says why.")
        headers.append((b"content-length", str(len(answer)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def _is_question(scope: "Scope") -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and path_of(scope) == "/decide"


_JSON = (b"content-type", b"application/json")


def _said(words: str) -> bytes:
    return json.dumps({"error": words}, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _add_page(
    app: "FastAPI",
    path: str,
    show: Callable[[], Awaitable[Any]],
    summary: str,
    type_: Any,
    others: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Answer GET, and HEAD, which belongs to it but not into the document; without a type it is a page of HTML."""
    from starlette.responses import HTMLResponse, JSONResponse

    kind = JSONResponse if type_ is not None else HTMLResponse
    responses: Any = {status: {"model": type_, "description": words} for status, words in others.items()}
    options: Any = {"summary": summary, "response_model": type_, "response_class": kind, "responses": responses}
    app.add_api_route(path, show, methods=["GET"], **options)
    app.add_api_route(path, show, methods=["HEAD"], include_in_schema=False, response_model=None)


def _tell_of_keys(app: "FastAPI") -> None:
    """Say in the document how a key is given, which is asked for before any route is reached."""
    document = app.openapi()  # kept by the application from now on
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "password": {"type": "http", "scheme": "basic", "description": "The key is the password, under any name."},
    }
    document["components"]["securitySchemes"] = schemes
    document["security"] = [{name: []} for name in schemes]
    for path in OPEN:
        for operation in document["paths"][path].values():
            operation["security"] = []


def _fixed(page: str, headers: dict[str, str], summary: str) -> tuple[Callable[[], Awaitable[Any]], str, Any]:
    """Return what :func:`_add_page` takes for one page that stays as it is."""
    from starlette.responses import HTMLResponse

    async def show() -> Any:
        return HTMLResponse(page, headers=headers)

    return show, summary, None


async def _say_where(request: "Request", error: Any) -> "Response":
    """Tell which addresses there are, for whoever has taken another or another method."""
    from starlette.responses import JSONResponse

    places = ", ".join(request.app.openapi()["paths"])
    words = f"{error.detail}: there are {places} and /openapi.json, of which /decide takes POST."
    return JSONResponse({"error": words}, error.status_code, error.headers)


class _KnownHosts:
    """Refuses requests that come under a name which is not the service's own."""

    def __init__(self, app: "ASGIApp", allowed: frozenset[str]) -> None:
        self.app, self.allowed = app, allowed

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or self._knows(next((v for k, v in scope["headers"] if k == b"host"), b"")):
            return await self.app(scope, receive, send)
        from starlette.responses import JSONResponse

        words = "the service is not known under the name that the request gives: use its address, or start it with "
        return await JSONResponse({"error": f"{words}--allow-host and that name."}, 421)(scope, receive, send)

    def _knows(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self.allowed or name in ("localhost", "") or "*" in self.allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # no name, so that nobody can point it elsewhere


_MOST_CHOICES = 100
"""Values that a list offers; above it, typing is quicker."""

_CLASSES_NAMED = 12


def report_headers(page: str) -> dict[str, str]:
    """Return the HTTP headers to send a report with: a file from a model's folder, which may be anybody's.

    It may run the scripts and styles that stand in it, which are named by their hashes; it loads nothing, speaks to
    nobody, least of all to the service in the reader's name, and no other page may frame it.

    Examples
    --------
    >>> report_headers("<h1>good</h1>")["Content-Security-Policy"]
    "sandbox allow-scripts allow-modals; default-src 'none'; style-src 'none'; script-src 'none'; ...'none'"
    """
    styles, scripts = own_parts(page)
    policy = content_policy(styles, scripts, "frame-ancestors 'none'")
    return SECURITY_HEADERS | {"Content-Security-Policy": f"sandbox allow-scripts allow-modals; {policy}"}


def try_page(model: TableModel, *, has_report: bool) -> tuple[str, dict[str, str]]:
    """Return the page as HTML that loads nothing from anywhere, and the HTTP headers to send it with.

    Parameters
    ----------
    model : TableModel
    has_report : bool
        Whether to link to ``/report``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"<b>": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> page, headers = try_page(fit_table(table, "y", model="lr"), has_report=False)
    >>> "&lt;b&gt;" in page, "<b>" in page, "://" in page
    (True, False, False)
    """
    style = asset("demur.tabular", "report.css") + asset("demur.deploy", "try.css")
    script = asset("demur.deploy", "try.js")
    data = {
        "names": list(model.schema.names),  # the exact names, which the page may have to write otherwise
        "cost": model.cost,
        "cost_adjustable": model.cost_adjustable,
        "has_proba": model.has_proba,
    }
    context = {
        "model": model,
        "classes": [str(one) for one in as_column(model.classes[:_CLASSES_NAMED], model.label_type).to_pylist()],
        "columns": model.schema.columns,
        "most_choices": _MOST_CHOICES,
        "highest_cost": max(0.5, model.cost or 0),
        "has_report": has_report,
        "style": style,
        "script": script,
        "data": embedded_json(data),
        "version": __version__,
    }
    page = page_environment("demur.deploy", needed_by="the service", extra="serve").get_template("try.html")
    policy = content_policy(style, script, "connect-src 'self'", "frame-ancestors 'none'")
    return str(page.render(context)), {**SECURITY_HEADERS, "Content-Security-Policy": policy}
