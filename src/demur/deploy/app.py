"""The HTTP service: which address answers what."""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demur._version import __version__
from demur.deploy.decider import Decider
from demur.deploy.lanes import Lanes
from demur.deploy.openapi import openapi_document
from demur.deploy.refusal import RefusedError
from demur.deploy.try_page import COMMON_HEADERS, SANDBOX, try_page
from demur.errors import InputError, MissingExtraError
from demur.tabular import TableModel

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

__all__ = ["create_app"]

_log = logging.getLogger("demur.deploy")


def create_app(
    model: TableModel,
    *,
    report: str | Path | None = None,
    max_rows: int = 10_000,
    max_bytes: int = 5_000_000,
) -> "FastAPI":
    """Return a web application that decides with a model.

    ``POST /decide`` takes ``{"rows": [{...}, ...], "cost": 0.1}`` or ``{"row": {...}}``; ``/health`` tells that it
    runs, ``/openapi.json`` describes the columns, ``/`` is a page to try it and ``/report`` the report, if there is
    one. It answers in the words of :meth:`TableModel.answers`, with the same decisions to the last bit.

    Parameters
    ----------
    model : TableModel
    report : path, optional
        An HTML file to show at ``/report``.
    max_rows : int, default 10000
        The most rows of one request.
    max_bytes : int, default 5000000
        The largest body of one request.

    Raises
    ------
    ImportError
        Without FastAPI or Jinja2: ``pip install demur[serve]``.

    Examples
    --------
    >>> import asyncio, httpx, pyarrow as pa
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
        from fastapi import FastAPI
        from starlette.exceptions import HTTPException
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError("the service needs FastAPI: pip install demur[serve].") from None
    for name, limit in (("max_rows", max_rows), ("max_bytes", max_bytes)):
        if limit < 1:
            raise InputError(f"{name} must be at least 1, got {limit!r}.")
    decider = Decider(model, max_rows)
    lanes = Lanes(decider.answer)
    document = openapi_document(model, max_rows=max_rows, max_bytes=max_bytes, has_report=report is not None)
    started = time.monotonic()

    async def decide(request: "Request") -> Response:
        try:
            with lanes:
                answer = await lanes.run(await _body(request, max_bytes))
        except RefusedError as error:
            headers = {"Retry-After": "1"} if error.status == 503 else None
            return JSONResponse({"error": str(error)}, error.status, headers)
        except Exception:  # whatever a model may raise: the service goes on, and its log tells
            _log.exception("a request failed")
            return JSONResponse({"error": "the service failed on this request; its log says why."}, 500)
        return Response(answer, media_type="application/json")

    async def health(_: "Request") -> Response:
        facts = {
            "status": "ok",
            "version": __version__,
            "model": decider.about["name"],
            "target": decider.about["target"],
            "n_classes": len(model.classes),
            "uptime_seconds": round(time.monotonic() - started, 3),
        }
        return JSONResponse(facts)

    async def refuse(_: "Request", error: Any) -> Response:
        """Tell which addresses there are, for whoever has taken another or another method."""
        places = ", ".join(document["paths"])
        return JSONResponse(
            {"error": f"{error.detail}: there are {places} and /openapi.json, of which /decide takes POST."},
            error.status_code,
            error.headers,
        )

    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False, exception_handlers={HTTPException: refuse})
    app.openapi = lambda: document  # type: ignore[method-assign] # FastAPI's way to give one's own
    # plain routes: FastAPI's own read a whole body, however large, before a handler sees it
    app.router.routes += [
        Route("/decide", decide, methods=["POST"]),
        Route("/health", health),
        Route("/", _fixed(*try_page(model, has_report=report is not None))),
    ]
    if report is not None:
        page = Path(report).read_text(encoding="utf-8")
        app.router.routes.append(Route("/report", _fixed(page, COMMON_HEADERS | SANDBOX)))
    return app


def _fixed(page: str, headers: dict[str, str]) -> Any:
    """Return a handler that answers with one page."""
    from starlette.responses import HTMLResponse, Response

    async def show(_: "Request") -> Response:
        return HTMLResponse(page, headers=headers)

    return show


async def _body(request: "Request", max_bytes: int) -> bytes:
    """Return the body, and stop reading as soon as it is too large, whatever its length is said to be."""
    from starlette.requests import ClientDisconnect

    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        got = f"{kind}; {charset}" if charset else kind or "nothing"
        raise RefusedError(f"the content type is {got[:60]!r}: send JSON, with Content-Type: application/json", 415)
    too_large = RefusedError(f"the body has more than {max_bytes:,} bytes: send the rows in several requests", 413)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_large
    except ClientDisconnect:
        raise RefusedError("the connection ended before the body did", 400) from None
    return bytes(body)
