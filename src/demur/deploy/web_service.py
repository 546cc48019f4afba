"""The HTTP service: its routes and pages, limits, keys and access log."""

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Annotated, Any

from demur import __version__
from demur.errors import InputError, MissingExtraError
from demur.tabular import TableModel
from demur.tabular.html_report import SECURITY_HEADERS, asset, content_policy, own_parts, page_environment
from demur.tabular.table_files import as_column

try:
    import prometheus_client  # noqa: F401 # one message for the packages of one extra
    from fastapi import Depends, FastAPI, HTTPException, Request, Response, Security
    from fastapi.responses import HTMLResponse, JSONResponse
    from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBasic, HTTPBasicCredentials, HTTPBearer
    from pydantic import TypeAdapter, ValidationError
    from starlette.exceptions import HTTPException as AnyHTTPException
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtraError("the service needs FastAPI: pip install demur[serve].") from None

from demur.deploy.answers import Answerer, ServiceMetrics
from demur.deploy.request_types import RequestError, answer_type, question_type, sentence

_access = logging.getLogger("demur.access")

_OWN_HOSTS = ("localhost", "127.0.0.1", "::1")
_PROBES = ("/health", "/ready", "/metrics")
"""Paths of probes, which are requested every few seconds and logged at level debug only."""

_REFUSALS = {
    400: "The host name is unknown.",
    401: "The request has no valid key.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    422: "The body is not JSON, or does not fit the model.",
    500: "The service failed; its log has the reason.",
}

_CLIENT_LEFT = 499
"""The status that nginx logs for a client that closed the connection before the answer."""


def create_app(
    model: TableModel,
    *,
    report: str | Path | None = None,
    max_rows: int = 10_000,
    max_bytes: int = 5_000_000,
    max_seconds: float = 30.0,
    allowed_hosts: Collection[str] = (),
    audit: float = 0.0,
    api_keys: Collection[str] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Return a FastAPI application that decides with a model.

    ``POST /decide`` takes ``{"rows": [{...}, ...], "cost": 0.1}`` or ``{"row": {...}}``, with ``"proba": true`` for the
    probability of each class, and ``"why": true`` for the columns that explain a declined row. ``/health`` and
    ``/ready`` are for probes, ``/metrics`` for Prometheus, ``/openapi.json`` and the page ``/docs`` describe the
    columns, ``/`` is a page to try the model and ``/report`` shows the report, if there is one. The answers are those
    of :meth:`TableModel.answers`.

    Parameters
    ----------
    model : TableModel
    report : path, optional
        HTML file to show at ``/report``.
    max_rows : int, default 10000
        Largest number of rows in one request.
    max_bytes : int, default 5000000
        Largest body of one request.
    max_seconds : float, default 30
        Seconds within which a body must arrive.
    allowed_hosts : names, optional
        Host names under which clients may reach the service, in addition to this machine's loopback names; ``"*"`` for
        any. Other names are refused, so a web page cannot reach the service through a host name that it controls.
    audit : float, default 0
        Share of the answered rows to draw for review. Above 0, each decision has a field ``why``: ``"declined"``,
        ``"audit"``, or null where the row needs no review.
    api_keys : collection of str, optional
        API keys: each request, except to ``/health`` and ``/ready``, must present one of them.
    stopping : callable, optional
        Whether the service is about to stop, in which case ``/ready`` returns 503.

    Raises
    ------
    ImportError
        Without FastAPI, prometheus_client or Jinja2: ``pip install demur[serve]``.

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
    >>> asyncio.run(ask({"row": {"size": "big"}}))["error"]
    "row 1, column 'size': input should be a valid number, got 'big'."
    """
    if isinstance(api_keys, str) or isinstance(allowed_hosts, str):
        raise InputError("api_keys and allowed_hosts must be lists of strings: put a single string into a list.")
    answerer = Answerer(model, audit)
    app = FastAPI(
        title=f"demur: {model.target}",
        version=__version__,
        description="A classifier that declines to answer where declining costs less than a likely mistake.",
        openapi_url=None,  # it names the columns, and so needs the key
        redirect_slashes=False,  # behind a TLS proxy the redirect would be to an http address
        exception_handlers={AnyHTTPException: _refuse, InputError: _refuse},
    )
    keyed = [Depends(_key_check(api_keys))] if api_keys else []
    read_body = partial(_read_body, max_bytes=max_bytes, max_seconds=max_seconds)
    types = _add_decide(app, answerer, max_rows, read_body, keyed)

    @app.get("/metrics", summary="Counts for Prometheus", dependencies=keyed)
    async def metrics() -> Response:
        return Response(answerer.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    _add_probes(app, stopping)
    app.openapi().setdefault("components", {}).setdefault("schemas", {}).update(types)
    _add_pages(app, model, report, keyed)
    app.add_middleware(
        TrustedHostMiddleware,
        allowed_hosts=[_host_pattern(name) for name in (*_OWN_HOSTS, *allowed_hosts)],
        www_redirect=False,
    )
    app.add_middleware(RequestLog, metrics=answerer.metrics)  # the outermost, so that it sees what the others refuse
    return app


def _add_decide(
    app: FastAPI,
    answerer: Answerer,
    max_rows: int,
    read_body: Callable[[Request], Awaitable[bytes]],
    keyed: list[Any],
) -> dict[str, Any]:
    """Add the path ``/decide``, and return the types in its description.

    It reads the body itself, which FastAPI would do before it checks the key.
    """
    model = answerer.model
    questions: TypeAdapter[Any] = TypeAdapter(question_type(model, max_rows))
    question = questions.json_schema(ref_template="#/components/schemas/{model}")
    types: dict[str, Any] = question.pop("$defs")
    body = {"required": True, "content": {"application/json": {"schema": question}}}
    responses: Any = {status: {"description": words} for status, words in _REFUSALS.items()}
    answer = answer_type(model, audits=answerer.audit > 0)

    @app.post("/decide", summary=f"Decide {model.target} for one row or many", dependencies=keyed,
              response_model=answer, responses=responses, openapi_extra={"requestBody": body})  # fmt: skip
    async def decide(request: Request) -> Response:
        answerer.n_open += 1
        try:
            asked = questions.validate_json(await read_body(request))
            return Response(await answerer.answer(asked), media_type="application/json")
        except ValidationError as error:
            raise RequestError(sentence(error.errors(include_url=False)[0])) from None
        finally:
            answerer.n_open -= 1

    return types


def _add_probes(app: FastAPI, stopping: Callable[[], bool]) -> None:
    """Add the paths that need no key and reveal nothing about the model."""

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether the service runs")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", summary="Whether it takes requests", responses={503: {"description": "It is stopping."}})
    async def ready() -> JSONResponse:
        return JSONResponse({"status": "stopping"}, 503) if stopping() else JSONResponse({"status": "ready"})


def _add_pages(app: FastAPI, model: TableModel, report: str | Path | None, keyed: list[Any]) -> None:
    """Add the page to try the model, its report and the OpenAPI document."""
    pages = {"/": try_page(model, has_report=report is not None), "/docs": _page("docs.html", api=app.openapi())}
    if report is not None:
        page = Path(report).read_text(encoding="utf-8", errors="replace")
        pages["/report"] = page, report_headers(page)
    shown: dict[str, Response] = {path: HTMLResponse(page, 200, headers) for path, (page, headers) in pages.items()}
    shown["/openapi.json"] = JSONResponse(app.openapi())
    for path, response in shown.items():
        endpoint = partial(_show, response)
        app.add_api_route(path, endpoint, methods=["GET", "HEAD"], include_in_schema=False, dependencies=keyed)


async def _show(response: Any) -> Any:
    return response


async def _refuse(request: Request, error: Any) -> Response:
    """Answer a request that failed with one sentence."""
    if isinstance(error, InputError):
        status = getattr(error, "status", 422)
        headers = {"Connection": "close"} if status in (408, 413) else None  # the rest of a body may come
        return JSONResponse({"error": str(error)}, status, headers)
    return JSONResponse({"error": f"{error.detail}."}, error.status_code, error.headers)


_MOST_CHOICES = 100
"""Maximum number of values in a selection list; with more, a text field is used."""

_CLASSES_NAMED = 12


def report_headers(page: str) -> dict[str, str]:
    """Return the HTTP headers for a report, which comes from a model folder and is not trusted.

    The report may run the scripts and styles that it contains, which are named by their hashes. It may not load or
    send anything, and no other page may frame it.

    Examples
    --------
    >>> report_headers("<h1>good</h1>")["Content-Security-Policy"]
    "sandbox allow-scripts allow-modals; default-src 'none'; style-src 'none'; script-src 'none'; ...'none'"
    """
    styles, scripts = own_parts(page)
    policy = content_policy(styles, scripts, "frame-ancestors 'none'")
    return SECURITY_HEADERS | {"Content-Security-Policy": f"sandbox allow-scripts allow-modals; {policy}"}


def try_page(model: TableModel, *, has_report: bool) -> tuple[str, dict[str, str]]:
    """Return the form to try a model as HTML that loads nothing else, and its HTTP headers.

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
    data = {
        "names": list(model.schema.names),  # the exact names, which HTML may have to write differently
        "cost": model.cost,
        "cost_adjustable": model.cost_adjustable,
        "has_proba": model.has_proba,
        "classes": model.classes.tolist(),
        "why": model.typical is not None,
        "examples": [one for one in model.examples if any(value is not None for value in one.values())],
    }
    context = {
        "model": model,
        "classes": [str(one) for one in as_column(model.classes[:_CLASSES_NAMED], model.label_type).to_pylist()],
        "columns": list(zip(model.schema.columns, model.ranges, strict=True)),
        "most_choices": _MOST_CHOICES,
        "highest_cost": max(0.5, model.cost or 0),
        "has_report": has_report,
    }
    return _page("try.html", "try.js", **context, data=data)


def _page(template: str, code: str | None = None, **context: Any) -> tuple[str, dict[str, str]]:
    """Return a page that loads nothing from elsewhere, and its HTTP headers."""
    style = asset("demur.tabular", "report.css") + asset("demur.deploy", "try.css")
    script = "" if code is None else asset("demur.deploy", code)
    environment = page_environment("demur.deploy", needed_by="the service", extra="serve")
    page = environment.get_template(template).render(**context, style=style, script=script, version=__version__)
    policy = content_policy(style, script, "connect-src 'self'", "frame-ancestors 'none'")
    return str(page), {**SECURITY_HEADERS, "Content-Security-Policy": policy}


def _host_pattern(name: str) -> str:
    """Return a host name as it is in requests: IPv6 addresses are in brackets there."""
    with suppress(ValueError):
        return f"[{IPv6Address(name.strip('[]'))}]"
    if not re.fullmatch(r"\*|(\*\.)?[^*/:@]+", name):
        advice = "leave out scheme and port; * is allowed only at the start, as in *.a.org"
        raise InputError(f"{name!r} is not a host name: {advice}.")
    return name


# Limits, keys and the log ---------------------------------------------------------------------------------------------


async def _read_body(request: Request, *, max_bytes: int, max_seconds: float) -> bytes:
    """Return the body of a request, or raise a :class:`RequestError` if it is too large or too slow."""
    body, length = bytearray(), request.headers.get("content-length")
    try:
        async with asyncio.timeout(max_seconds), aclosing(request.stream()) as parts:
            async for part in parts:
                body += part
                if len(body) > max_bytes:
                    problem = f"the body has more than {max_bytes:,} bytes"
                    raise RequestError(f"{problem}: send the rows in several requests.", 413)
                if str(len(body)) == length:  # the message that ends the body would take time
                    break
    except ClientDisconnect:
        raise RequestError("the client closed the connection.", _CLIENT_LEFT) from None
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {max_seconds:g} seconds.", 408) from None
    return bytes(body)


_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")


class RequestLog:
    """ASGI middleware that gives each request an id, counts it, and writes it to the log ``demur.access``.

    The id is that of the header ``X-Request-ID``, if it is safe to log, and is sent back in the response.

    Parameters
    ----------
    app : ASGI application
    metrics : ServiceMetrics
    """

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16).encode()
        status = _CLIENT_LEFT

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id)]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception:
            status = 500
            raise
        finally:
            seconds = time.perf_counter() - started
            route = scope.get("route")
            self.metrics.count_request("(other)" if route is None else route.path, status, seconds)
            level = logging.DEBUG if scope["path"] in _PROBES else logging.INFO
            if _access.isEnabledFor(level):
                fields = {
                    "id": request_id.decode(),
                    "client": (scope.get("client") or ("-",))[0],
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "ms": round(1000 * seconds, 2),
                }
                _access.log(level, "request %s", json.dumps(fields))  # no request can write a line of its own


def _key_check(keys: Collection[str]) -> Callable[..., Awaitable[None]]:
    """Return the dependency that refuses requests without a key: as a bearer token, a header, or a password."""
    bearer, basic = HTTPBearer(auto_error=False), HTTPBasic(auto_error=False)
    header = APIKeyHeader(name="X-API-Key", auto_error=False)

    async def check(
        token: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
        key: Annotated[str | None, Security(header)],
        login: Annotated[HTTPBasicCredentials | None, Security(basic)],
    ) -> None:
        given = [token and token.credentials, key, login and login.password]
        right = [secrets.compare_digest(str(one).encode(), known.encode()) for one in given if one for known in keys]
        if not any(right):
            problem = "the request has no valid key: send Authorization: Bearer and the key"
            raise HTTPException(401, problem, {"WWW-Authenticate": 'Basic realm="demur", Bearer'})

    return check


_KEY = re.compile(r"[\x21-\x7e]+")


def read_api_keys(path: Path | None, environment: str | None) -> tuple[str, ...]:
    """Return the keys in a file, one per line, or the one that the environment gives.

    Parameters
    ----------
    path : path or None
        Empty lines and lines that begin with # do not count.
    environment : str or None
        Used where there is no file.

    Raises
    ------
    InputError
        If there is no key, or one that no HTTP header can carry. No message shows a key.

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
    text = str(environment) if path is None else path.read_text(encoding="utf-8", errors="replace")
    keys = tuple(key for line in text.splitlines() if (key := line.strip()) and not key.startswith("#"))
    if not keys:
        raise InputError(f"{where} holds no key: write one into it, or leave it out.")
    if not all(_KEY.fullmatch(key) for key in keys):
        raise InputError(f"{where}: a key may hold printable ASCII characters only, without spaces.")
    return keys
