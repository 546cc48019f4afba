"""What whoever runs the service needs: metrics, ids, keys, readiness, a log, and a newer model without a pause."""

import asyncio
import base64
import io
import json
import logging
import re
import threading
import time
from functools import cache

import httpx
import numpy as np
import pyarrow as pa
import pytest
from service_samples import CLASSES, good, model, send, table
from starlette.applications import Starlette
from starlette.routing import Mount

import demur
from demur.deploy import create_app, operations, save
from demur.deploy.operations import LogWriter, Operations, ReloadingApp, one_line, read_api_keys, request_id_of
from demur.deploy.service_metrics import CONTENT_TYPE, ServiceMetrics
from demur.errors import InputError
from demur.tabular import TableModel, fit_table

JSON = {"content-type": "application/json"}
LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')


plain_app = cache(lambda: create_app(model()))


def unescaped(found):
    return {r"\\": "\\", r"\"": '"', r"\n": "\n"}[found.group()]


def parse(text):
    """Read Prometheus's text format strictly: each line by its grammar, each family with its type, no series twice."""
    found, types = {}, {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = LINE.fullmatch(line).groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert types.get(name) in ("counter", "gauge") or types.get(family) == "histogram"
            named = {key: re.sub(r'\\[\\"n]', unescaped, written) for key, written in LABEL.findall(labels or "")}
            key = (name, frozenset(named.items()))
            assert key not in found
            found[key] = float(value)
    return found


def value(found, metric, **labels):
    return found[(metric, frozenset(labels.items()))]


HOSTILE = ['say "hi"', "two\nlines", "back\\slash", "\\n", "ünï", 'a,b="c"} 7', "\r\t", ""]


def test_labels_survive_whatever_classes_are_called():
    metrics = ServiceMetrics()
    metrics.serves('mo"del\n', "tar\\get", HOSTILE)
    for k, name in enumerate(HOSTILE):
        metrics.decided([name] * (k + 1), [False] * (k + 1), [0.5] * (k + 1))
    found = parse(metrics.text())
    for k, name in enumerate(HOSTILE):
        assert value(found, "demur_decisions_total", **{"class": name, "rejected": "false"}) == k + 1
    assert any(("name", 'mo"del\n') in labels for name, labels in found if name == "demur_model_info")


def test_a_service_counts_what_it_answers():
    served = create_app(model())
    send(served, {"json": good(30, cost=0.05)}, {"json": {"rows": []}}, {"content": b"{", "headers": JSON})
    send(served, {}, {}, path="/nothing/here", method="GET")
    response = send(served, {}, path="/metrics", method="GET")[0]
    assert response.headers["content-type"] == CONTENT_TYPE
    found = parse(response.text)
    for path, status, count in (("/decide", 200, 1), ("/decide", 422, 1), ("/decide", 400, 1), ("(other)", 404, 2)):
        assert value(found, "demur_requests_total", path=path, status=str(status)) == count
    assert value(found, "demur_request_seconds_count", path="/decide") == 3
    assert value(found, "demur_request_seconds_bucket", path="/decide", le="+Inf") == 3
    answers = model().answers(table().slice(0, 30), 0.05)
    rejected = sum(answers["rejected"].to_pylist())
    assert 0 < rejected < 30
    assert value(found, "demur_rows_total") == 30
    assert value(found, "demur_rows_rejected_total") == rejected
    assert value(found, "demur_rejected_share") == pytest.approx(rejected / 30)
    counted = {
        (dict(labels)["class"], dict(labels)["rejected"]): count
        for (name, labels), count in found.items()
        if name == "demur_decisions_total"
    }
    expected = {}
    for row in answers.to_pylist():
        key = (row["first_choice"], str(row["rejected"]).lower())
        expected[key] = expected.get(key, 0) + 1
    assert counted == expected
    confidence = answers["confidence"].to_numpy()
    for (name, labels), count in found.items():
        if name == "demur_confidence_bucket":
            assert count == (confidence <= float(dict(labels)["le"])).sum()
    assert value(found, "demur_confidence_sum") == pytest.approx(confidence.sum())
    assert value(found, "demur_model_info", name="lr", target="y", version=demur.__version__) == 1
    assert value(found, "demur_ready") == 1
    assert value(found, "demur_requests_in_progress") == 1  # this one


def test_a_service_that_is_mounted_below_another_answers_as_it_does_alone():
    served = create_app(model(), operations=Operations(api_keys=["k" * 20]))
    site = Starlette(routes=[Mount("/pets", served)])
    with_key = {"json": good(), "headers": {"X-API-Key": "k" * 20}}
    alone, below = send(served, with_key)[0], send(site, with_key, path="/pets/decide")[0]
    assert (below.status_code, below.json()) == (200, alone.json())
    assert send(site, {"json": good()}, path="/pets/decide")[0].status_code == 401
    assert send(site, {}, path="/pets/ready", method="GET")[0].status_code == 200
    text = send(site, {"headers": with_key["headers"]}, path="/pets/metrics", method="GET")[0].text
    assert value(parse(text), "demur_requests_total", path="/decide", status="200") == 2


def test_paths_and_classes_without_end_are_counted_as_one():
    served = create_app(model())
    for k in range(20):
        send(served, {}, path=f"/{k}", method="GET")
    paths = {dict(labels)["path"] for name, labels in parse(_metrics(served)) if name == "demur_requests_total"}
    assert paths == {"(other)"}
    metrics = ServiceMetrics()
    metrics.serves("m", "y", [str(k) for k in range(5000)])
    metrics.decided(list(range(5000)), [False] * 5000, [1.0] * 5000)
    names = [labels for name, labels in parse(metrics.text()) if name == "demur_decisions_total"]
    assert len(names) == 1001


def _metrics(served):
    return send(served, {}, path="/metrics", method="GET")[0].text


def test_processes_of_one_service_tell_the_sum(tmp_path):
    one, other = ServiceMetrics(tmp_path), ServiceMetrics(tmp_path)
    one.decided(["a", "b"], [False, True], [0.9, 0.2])
    one.answered("/decide", 200, 0.1)
    other.decided(["a"], [False], [0.7])
    other.answered("/decide", 200, 0.2)
    one.flush()
    other.flush()
    for metrics in (one, other):
        found = parse(metrics.text())
        assert value(found, "demur_rows_total") == 3
        assert value(found, "demur_decisions_total", **{"class": "a", "rejected": "false"}) == 2
        assert value(found, "demur_request_seconds_sum", path="/decide") == pytest.approx(0.3)
        assert value(found, "demur_rejected_share") == pytest.approx(1 / 3)


def test_counts_of_many_threads_add_up():
    metrics = ServiceMetrics()

    def count():
        for _ in range(300):
            metrics.decided(["a"], [True], [0.5])
            metrics.answered("/decide", 200, 0.001)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = parse(metrics.text())
    assert value(found, "demur_rows_total") == value(found, "demur_request_seconds_count", path="/decide") == 1200


# Ids and the log ------------------------------------------------------------------------------------------------------

STRANGE = [b"", b"a b", b"x\nINFO fine", b"x\r\n\r\n", b"\x1b[2J", b"a" * 129, "ü".encode(), b'"', b"<b>", b"-x"]


@pytest.mark.parametrize("given", STRANGE)
def test_an_id_that_may_not_stand_in_a_log_is_replaced(given):
    assert re.fullmatch(r"[0-9a-f]{32}", request_id_of(given))


def test_an_id_comes_back_also_with_a_refusal():
    served = create_app(model(), operations=Operations(api_keys=["key"]))
    for path in ("/health", "/decide", "/nothing"):
        answer = send(served, {"headers": {"X-Request-ID": "4bf92f-1:2"}}, path=path, method="GET")[0]
        assert answer.headers["x-request-id"] == "4bf92f-1:2"
    ids = [one.headers["x-request-id"] for one in send(served, {}, {}, path="/health", method="GET")]
    assert len(set(ids)) == 2
    foreign = send(served, {"headers": {"Host": "evil.example"}}, path="/health", method="GET")[0]
    assert foreign.status_code == 421
    assert foreign.headers["x-request-id"]


@pytest.fixture
def logged():
    """The lines that demur logs, from debug on, as the service writes them."""
    handlers = {}
    loggers = [logging.getLogger(name) for name in ("demur", "uvicorn")]
    saved = [(logger, logger.handlers[:], logger.level) for logger in loggers]

    def start(level="debug", as_json=False):
        stream = io.StringIO()
        handlers["one"] = operations.write_logs(level, metrics=ServiceMetrics(), as_json=as_json, stream=stream)

        def lines():
            handlers["one"].close()
            return stream.getvalue().splitlines()

        return lines

    yield start
    for logger, before, level in saved:
        logger.handlers[:], logger.propagate = before, True
        logger.setLevel(level)


def ask_raw(served, path, headers=()):
    """Send what no client would: a path and headers that are not checked by anybody before."""
    sent = []

    async def send_(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"k=v",
        "headers": [(b"host", b"localhost"), *headers], "client": ("127.0.0.1", 5), "scheme": "http", "root_path": "",
        "server": ("localhost", 80), "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip
    asyncio.run(served(scope, receive, send_))
    return sent


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "path", ["/x\nINFO request id=1", "/\r\n2026-01-01T00:00:00Z ERROR", "/\x1b[2J", "/\u2028x", "/\x85x"]
)
def test_no_request_can_write_a_line_of_its_own(logged, path, as_json):
    lines = logged(as_json=as_json)
    ask_raw(plain_app(), path, [(b"x-request-id", b"1\nERROR"), (b"authorization", b"Bearer hush")])
    written = lines()
    assert len(written) == 1
    assert written[0].isprintable()
    assert "hush" not in written[0]
    assert "k=v" not in written[0]
    if as_json:
        found = json.loads(written[0])
        assert (found["path"], found["status"], found["message"]) == (path, 404, "request")
    else:
        assert re.fullmatch(
            r'\S+Z INFO request id=[0-9a-f]{32} client=127.0.0.1 method=GET path=".*" status=404 ms=\S+', written[0]
        )


def test_a_traceback_cannot_begin_a_line(logged):
    lines = logged()
    try:
        raise ValueError("first\n2026-01-01T00:00:00.000Z INFO request id=forged")
    except ValueError:
        logging.getLogger("demur.deploy").exception("a request\nfailed")
    written = lines()
    assert written[0].endswith(r"ERROR a request\nfailed")
    assert all(line.startswith("    | ") for line in written[1:])
    assert len(written) > 3


@pytest.mark.parametrize(("level", "n_lines"), [("debug", 2), ("info", 1), ("warning", 0), ("error", 0)])
def test_the_level_decides_what_is_written(logged, level, n_lines):
    lines = logged(level)
    served = plain_app()
    send(served, {}, path="/health", method="GET")
    send(served, {"json": good()})
    assert len(lines()) == n_lines


def test_a_log_that_nobody_reads_stops_nothing():
    class Stuck(io.StringIO):
        def write(self, text):
            gate.wait(10)
            return super().write(text)

    gate, metrics, stream = threading.Event(), ServiceMetrics(), Stuck()
    handler = LogWriter(stream, as_json=False, metrics=metrics)
    record = logging.LogRecord("demur", logging.INFO, "", 0, "line", None, None)
    for _ in range(LogWriter.MOST_WAITING + 500):
        handler.emit(record)
    dropped = value(parse(metrics.text()), "demur_log_lines_dropped_total")
    assert dropped >= 300
    gate.set()
    handler.close()
    assert stream.getvalue().count("\n") == LogWriter.MOST_WAITING + 500 - dropped


def test_one_line_leaves_plain_text_alone():
    assert one_line("cost 0.1 für 'y'") == "cost 0.1 für 'y'"
    assert one_line("a\x00\x9b\ud800").isprintable()


# Keys -----------------------------------------------------------------------------------------------------------------


def basic(password):
    return "Basic " + base64.b64encode(b"me:" + password.encode()).decode()


KEYS = Operations(api_keys=["first-key-of-two", "sécret".encode().decode()])


@pytest.fixture(scope="module")
def guarded():
    return create_app(model(), report=None, operations=KEYS)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key-of-two"},
        {"Authorization": "bearer  first-key-of-two "},
        {"X-API-Key": "first-key-of-two"},
        {"Authorization": basic("first-key-of-two")},
        {"Authorization": basic("sécret")},
        {"X-API-Key": "wrong", "Authorization": "Bearer first-key-of-two"},
    ],
)
def test_a_key_opens(guarded, headers):
    assert send(guarded, {"json": good(), "headers": headers})[0].status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer first-key-of-tw"},
        {"Authorization": "Bearer first-key-of-two2"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"first-key-of-two").decode()},
        {"Authorization": "Digest first-key-of-two"},
        {"X-API-Key": ""},
        {"Cookie": "key=first-key-of-two"},
    ],
)
def test_without_a_key_there_is_no_answer(guarded, headers):
    answer = send(guarded, {"headers": headers})[0]
    assert answer.status_code == 401
    assert set(answer.headers.get_list("www-authenticate")) == {'Basic realm="demur", charset="UTF-8"', "Bearer"}


def test_without_a_key_nothing_is_told(guarded):
    for path in ("/", "/metrics", "/openapi.json", "/no/such", "/decide/", "//ready", "/Ready"):
        answer = send(guarded, {}, path=path, method="GET")[0]
        assert answer.status_code == 401, path
        assert "size" not in answer.text


def test_probes_need_no_key_and_tell_nothing_of_the_model(guarded):
    assert send(guarded, {}, path="/ready", method="GET")[0].json() == {"status": "ready"}
    assert send(guarded, {}, path="/health", method="GET")[0].status_code == 200


def test_the_document_tells_how_a_key_is_given(guarded):
    document = guarded.openapi()
    assert {tuple(one) for one in document["security"]} == {("bearer",), ("header",), ("password",)}
    assert document["paths"]["/ready"]["get"]["security"] == []
    assert "security" not in document["paths"]["/decide"]["post"]
    assert "security" not in create_app(model()).openapi()


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# rotated in May\nnew-key\n\n old-key \n")
    assert read_api_keys(file, "unused") == ("new-key", "old-key")
    assert read_api_keys(None, None) == ()
    for content, words in (("", "holds no key"), ("# only\n", "holds no key"), ("a b\n", "line 1, holds a key with")):
        file.write_text(content)
        with pytest.raises(InputError, match=words) as refused:
            read_api_keys(file, None)
        assert "a b" not in str(refused.value)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not text"):
        read_api_keys(file, None)


# Readiness and a newer model ------------------------------------------------------------------------------------------


def test_a_service_that_stops_says_so_and_still_answers():
    own = Operations()
    served = create_app(model(), operations=own)
    assert send(served, {}, path="/ready", method="GET")[0].status_code == 200
    own.stop()
    answer = send(served, {}, path="/ready", method="GET")[0]
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
    assert value(parse(_metrics(served)), "demur_ready") == 0
    assert send(served, {"json": good()})[0].status_code == 200


def other_model():
    rng = np.random.default_rng(5)
    size = rng.normal(size=120)
    return fit_table(pa.table({"length": size, "kind": np.where(size > 0, "long", "short")}), "kind", model="lr")


def test_a_newer_model_takes_over_and_a_broken_one_does_not(tmp_path, logged):
    lines = logged("info")
    folder, own = tmp_path / "model", Operations()
    save(model(), folder)
    app = ReloadingApp(folder, demur.load, lambda found: create_app(found, operations=own), own)
    assert send(app, {"json": good()})[0].status_code == 200
    assert not app.look()  # nothing has changed
    save(other_model(), folder, overwrite=True)
    assert app.look()
    answer = send(app, {"json": {"row": {"length": 2.0}}})[0].json()
    assert answer["model"]["target"] == "kind"
    assert send(app, {"json": good()})[0].status_code == 422
    content = (folder / "model.skops").read_bytes()
    (folder / "model.skops").write_bytes(content[:-100])
    assert not app.look()
    assert send(app, {"json": {"row": {"length": 2.0}}})[0].json() == answer
    ready = send(app, {}, path="/ready", method="GET")[0]
    assert ready.status_code == 200
    assert "cannot be loaded" in ready.json()["reload"]
    found = parse(_metrics(app))
    assert value(found, "demur_model_reload_failing") == 1
    assert value(found, "demur_model_reloads_total", outcome="loaded") == 1
    assert value(found, "demur_model_reloads_total", outcome="failed") == 1
    (folder / "model.skops").write_bytes(content)
    assert app.look()
    assert value(parse(_metrics(app)), "demur_model_reload_failing") == 0
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert not app.look()
    assert send(app, {"json": {"row": {"length": 2.0}}})[0].status_code == 200
    written = [line for line in lines() if " request " not in line]
    assert len(written) == 3
    assert "ERROR the newer model in" in written[1]
    assert "the one before answers" in written[1]


def test_a_model_that_cannot_be_loaded_is_tried_a_few_times_only(tmp_path, logged):
    logged("error")
    folder, own, tried = tmp_path / "model", Operations(), []

    def load(path):
        tried.append(path)
        if len(tried) > 1:
            raise RuntimeError("whatever\nhappens")
        return model()

    save(model(), folder)
    app = ReloadingApp(folder, load, lambda found: create_app(found, operations=own), own)
    save(model(), folder, overwrite=True)
    assert [app.look() for _ in range(6)] == [False] * 6
    assert len(tried) == 4


def test_a_request_under_way_ends_on_the_model_that_it_came_to(tmp_path):
    folder, own = tmp_path / "model", Operations()
    save(model(), folder)
    app = ReloadingApp(folder, demur.load, lambda found: create_app(found, operations=own), own)

    async def slow_body():
        content = json.dumps(good(3)).encode()
        yield content[:10]
        save(other_model(), folder, overwrite=True)
        assert app.look()
        yield content[10:]

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            before = await client.post("/decide", content=slow_body(), headers=JSON)
            after = await client.post("/decide", json={"row": {"length": 1.0}})
            return before, after

    before, after = asyncio.run(ask())
    assert before.json()["decisions"] == model().answers(table().slice(0, 3)).to_pylist()
    assert after.json()["model"]["target"] == "kind"


# Probabilities --------------------------------------------------------------------------------------------------------


def test_probabilities_are_told_to_whoever_asks():
    answer = send(create_app(model()), {"json": good(4, proba=True)}, {"json": good(4, proba=False)})
    expected = model().predict_proba(table().slice(0, 4))
    found = answer[0].json()["decisions"]
    assert [list(one["proba"]) for one in found] == [sorted(CLASSES)] * 4
    assert [list(one["proba"].values()) for one in found] == expected.tolist()
    assert [{**one, "proba": None} for one in found] == [
        {**one, "proba": None} for one in answer[1].json()["decisions"]
    ]
    assert "proba" not in answer[1].json()["decisions"][0]


def test_probabilities_that_there_are_not(monkeypatch):
    monkeypatch.setattr(TableModel, "has_proba", False)
    refused = send(create_app(model()), {"json": good(proba=True)})[0]
    assert refused.status_code == 422
    assert "has no class probabilities" in refused.json()["error"]


def test_an_answer_has_a_limited_number_of_probabilities(monkeypatch):
    monkeypatch.setattr("demur.deploy.service_schema._MOST_PROBA", 10)
    large = send(create_app(model()), {"json": good(4, proba=True)}, {"json": good(4)})
    assert [one.status_code for one in large] == [413, 200]
    assert "4 rows of 3 classes have more than 10 probabilities" in large[0].json()["error"]


def test_time_is_counted_in_seconds():
    metrics = ServiceMetrics()
    metrics.answered("/decide", 200, 0.004)
    found = parse(metrics.text())
    assert value(found, "demur_request_seconds_bucket", path="/decide", le="0.0025") == 0
    assert value(found, "demur_request_seconds_bucket", path="/decide", le="0.005") == 1
    assert abs(value(found, "demur_start_timestamp_seconds") - time.time()) < 3600
