"""The routes of the service: the decisions of the model, limits, keys, host names, counts and the log."""

import asyncio
import base64
import datetime
import html
import json
import logging
import re
import sys
from functools import cache

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from service_samples import CLASSES, HOSTILE, Client, app, ask, good, json_rows, model, table, wrapped
from starlette.applications import Starlette
from starlette.routing import Mount

import demur
from demur import Chow, CostMatrix, Coverage, RiskControl, Threshold
from demur.deploy import create_app
from demur.deploy.answers import GraphModel, ServiceMetrics
from demur.deploy.web_service import read_api_keys
from demur.errors import InputError
from demur.tabular import ANSWER_COLUMNS, TableModel, evaluate_table, fit_table, write_report

JSON = {"content-type": "application/json"}


def same(found, expected):
    """Compare decisions: probabilities within 1e-6, everything else equal."""
    assert [one.keys() for one in found] == [one.keys() for one in expected]
    for one, other in zip(found, expected, strict=True):
        for name in {"confidence", "proba"} & one.keys():
            assert one.pop(name) == pytest.approx(other.pop(name), abs=1e-6)
        assert one == other


# Decisions ------------------------------------------------------------------------------------------------------------

SERVED = {
    "lr": model,
    "ce": lambda: model("ce"),
    **{name: lambda name=name: wrapped(name) for name in ("forest", "extra trees", "boosting", "blend")},
}


@cache
def served_app(name):
    return create_app(SERVED[name]())


@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=4)
@given(rows=st.lists(st.integers(0, 89), min_size=1, max_size=80), cost=st.sampled_from([None, 0.0, 0.05, 0.3, 0.49]))
def test_decisions_are_those_of_the_model(name, rows, cost):
    served, chosen = SERVED[name](), table().take(rows)
    answer = ask(served_app(name), {"rows": json_rows(chosen)} | ({} if cost is None else {"cost": cost})).json()
    same(answer["decisions"], served.answers(chosen, cost).to_pylist())
    assert answer["cost"] == (served.cost if cost is None else cost)


def test_one_row_is_a_list_of_one():
    row = json_rows(table().slice(3, 1))[0]
    one, many = ask(app(), {"row": row, "cost": 0.1}), ask(app(), {"rows": [row], "cost": 0.1})
    assert one.status_code == many.status_code == 200
    assert one.headers["content-type"] == "application/json"
    assert one.json() == many.json()
    assert list(one.json()) == ["decisions", "cost", "model"]
    assert list(one.json()["decisions"][0]) == list(ANSWER_COLUMNS)
    assert one.json()["model"] == {"name": "lr", "target": "y"}


def test_a_large_request_gets_the_decisions_of_its_single_rows():
    rows = table().take([k % 90 for k in range(900)])  # which a thread decides
    same(ask(app(), {"rows": json_rows(rows)}).json()["decisions"], model().answers(rows).to_pylist())


def test_what_is_declined_has_no_prediction():
    decisions = ask(app(), good(90, cost=0.1)).json()["decisions"]
    assert {one["rejected"] for one in decisions} == {True, False}
    for one in decisions:
        assert one["prediction"] == (None if one["rejected"] else one["first_choice"])
        assert one["first_choice"] in CLASSES
        assert one["second_choice"] != one["first_choice"]


def test_columns_that_the_model_does_not_use_may_be_there_or_not_in_any_order():
    row = json_rows(table().slice(5, 1))[0]
    assert {"y", "row_id"} <= row.keys()
    bare = {name: row[name] for name in reversed(model().schema.names)}
    assert ask(app(), {"row": row}).json() == ask(app(), {"row": bare}).json()


def test_unseen_categories_and_novel_rows_are_decided_as_by_the_model():
    row = json_rows(table().slice(5, 1))[0] | {HOSTILE: "unheard of", "size": 1e9}
    new = table().slice(5, 1).set_column(1, HOSTILE, pa.array(["unheard of"])).set_column(0, "size", pa.array([1e9]))
    (found,) = ask(app(), {"row": row}).json()["decisions"]
    same([found], model().answers(new).to_pylist())
    assert found["reason"].startswith("novel: size")


def test_a_number_as_a_frequent_category_of_many_may_be_written_with_a_point():
    rng = np.random.default_rng(0)
    kinds = np.array(["kind", "7", *(f"kind {number}" for number in range(400))])[rng.zipf(1.3, 2000) % 400]
    columns = {"x": rng.normal(size=2000), "kind": kinds}
    served = fit_table(pa.table({**columns, "y": np.where(kinds == "7", "a", "b")}), "y", model="lr")
    assert served.schema.columns[1].other
    for kind in ("7", "7.0", "8", "kind 1", "never seen"):
        found = ask(create_app(served), {"row": {"x": 0.5, "kind": kind}}).json()["decisions"]
        same(found, served.answers(pa.table({"x": [0.5], "kind": [kind]})).to_pylist())


def test_a_cost_that_is_fixed_may_be_named_but_not_changed():
    served = model("ova+hin")
    application = create_app(served)
    assert ask(application, good()).json()["cost"] == 0.2
    assert ask(application, good(cost=0.2)).status_code == 200
    refused = ask(application, good(cost=0.1))
    assert refused.status_code == 422
    assert f"this model cannot decide for another cost: {served.why_cost_fixed}" in refused.json()["error"]


MATRIX = np.c_[1 - np.eye(3), np.full(3, 0.2)]


@pytest.mark.parametrize("rule", [Coverage(0.7), RiskControl(0.6, delta=0.3), CostMatrix(MATRIX)], ids=repr)
def test_a_model_without_one_cost_answers_none_and_takes_none(rule):
    served = fit_table(table(), "y", model="lr", rule=rule)
    application = create_app(served)
    answer = ask(application, good(9)).json()
    assert answer["cost"] is None
    same(answer["decisions"], served.answers(table().slice(0, 9)).to_pylist())
    assert ask(application, good(cost=None)).json()["cost"] is None
    refused = ask(application, good(cost=0.2))
    assert refused.status_code == 422
    assert "this model cannot decide for another cost" in refused.json()["error"]
    page = Client(application).get("/").text
    assert "cost-slider" not in page.split("<script")[0]
    assert "The cost cannot be changed here" in page


@pytest.mark.parametrize(("rule", "cost"), [(Chow(0.3), 0.3), (Threshold(0.6), None)])
def test_the_cost_of_a_rule_is_the_cost(rule, cost):
    served = fit_table(table(), "y", model="lr", rule=rule)
    answer = ask(create_app(served), good(9)).json()
    assert answer["cost"] == (served.cost if cost is None else cost)
    same(answer["decisions"], served.answers(table().slice(0, 9)).to_pylist())


@pytest.mark.parametrize("labels", [[3, 5], [True, False], [0.5, 1.5]])
def test_classes_keep_their_type(labels):
    rows = pa.table({"size": [0.0, 0.1, 0.2, 5.0, 5.1, 5.2] * 5, "y": [*[labels[0]] * 3, *[labels[1]] * 3] * 5})
    application = create_app(fit_table(rows, "y", model="lr"))
    answers = ask(application, {"rows": [{"size": 0}, {"size": 5}]}).json()["decisions"]
    assert [one["prediction"] for one in answers] == labels
    assert type(answers[0]["prediction"]) is type(labels[0])


def test_probabilities_are_returned_on_request():
    found = ask(app(), good(4, proba=True)).json()["decisions"]
    assert [list(one["proba"]) for one in found] == [sorted(CLASSES)] * 4
    given_ = [list(one["proba"].values()) for one in found]
    np.testing.assert_allclose(given_, model().predict_proba(table().slice(0, 4)), atol=1e-6)
    assert "proba" not in ask(app(), good(4, proba=False)).json()["decisions"][0]


def test_reasons_are_returned_on_request():
    asked = json_rows(table().slice(0, 12))
    decided = ask(create_app(model()), {"rows": asked, "cost": 0.02, "why": True}).json()["decisions"]
    rejected = [one["rejected"] for one in decided]
    assert any(rejected)
    expected = model().because(table().slice(0, 12), rejected, 0.02)
    assert [one["because"] for one in decided] == expected
    assert {"column", "note"} == set(next(one for one in expected if one)[0])
    assert "because" not in ask(create_app(model()), {"row": asked[0]}).json()["decisions"][0]


def test_the_documentation_is_a_page_that_loads_nothing():
    answer = Client(create_app(model())).get("/docs")
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "script-src 'none'" in answer.headers["content-security-policy"]
    assert "://" not in answer.text
    assert "<script" not in answer.text
    for words in ("POST /decide", "OneRow", "Whether to return the columns that make a declined row"):
        assert words in answer.text


def test_a_model_without_probabilities_returns_none(monkeypatch):
    monkeypatch.setattr(TableModel, "has_proba", False)
    refused = ask(create_app(model()), good(proba=True))
    assert refused.status_code == 422
    assert "has no class probabilities" in refused.json()["error"]


def test_an_answer_has_a_limited_number_of_probabilities(monkeypatch):
    monkeypatch.setattr("demur.deploy.answers._MOST_PROBA", 10)
    large = ask(app(), good(4, proba=True))
    assert large.status_code == 413
    assert "4 rows of 3 classes have more than 10 probabilities" in large.json()["error"]
    assert ask(app(), good(4)).status_code == 200


def test_a_number_that_overflows_once_it_is_scaled_is_refused():
    scale = 1e-20
    rows = pa.table({"size": [scale * k for k in range(40)], "y": ["a"] * 20 + ["b"] * 20})
    served = create_app(fit_table(rows, "y", model="apc+log", novelty=None))
    assert ask(served, {"rows": [{"size": scale}, {"size": 40 * scale}]}).status_code == 200
    refused = ask(served, {"rows": [{"size": scale}, {"size": 1e29}]})
    assert refused.status_code == 422
    assert "a number is too far from the training data" in refused.json()["error"]


def test_a_defect_of_the_model_is_logged_and_the_service_lives(monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("out of order")

    served = create_app(model())
    with monkeypatch.context() as patched:
        patched.setattr(TableModel, "answers", broken)
        patched.setattr(GraphModel, "decided", broken)
        failed = ask(served, good())
    assert failed.status_code == 500
    assert failed.json() == {"error": "the service failed on this request; its log has the reason."}
    assert "out of order" in caplog.text
    assert ask(served, good()).status_code == 200


def test_requests_that_arrive_together_are_decided_together(monkeypatch):
    sizes, whole = [], GraphModel.decided
    monkeypatch.setattr(GraphModel, "decided", lambda self, codes: sizes.append(len(codes)) or whole(self, codes))
    rows = good(5)["rows"]
    questions = [{"row": rows[k % 5], "cost": cost} for k, cost in enumerate([None, 0.05, 0.3, 0.2] * 5)]
    odd = [{"row": good()["rows"][0] | {"size": 1e9}}, good(2, proba=True)]
    served = create_app(model())

    async def soon(body):
        await asyncio.sleep(0)  # as a body that comes from a network, after which others have begun
        yield body

    answers = posts(served, *(soon(json.dumps(one).encode()) for one in [*questions, *odd]))
    for question, answer in zip([*questions, *odd], answers, strict=True):
        same(answer.json()["decisions"], ask(served, question).json()["decisions"])
    assert max(sizes) > 5


def test_a_model_that_cannot_be_exported_decides_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert GraphModel.of(model()) is None
    same(ask(create_app(model()), good(9)).json()["decisions"], model().answers(table().slice(0, 9)).to_pylist())


# Pages ----------------------------------------------------------------------------------------------------------------


def test_the_report_is_shown_without_the_rights_of_the_service(tmp_path):
    (tmp_path / "report.html").write_text("<h1>good</h1>")
    application = create_app(model(), report=tmp_path / "report.html")
    shown = Client(application).get("/report")
    assert shown.text == "<h1>good</h1>"
    policy = shown.headers["content-security-policy"].split("; ")
    assert policy[0] == "sandbox allow-scripts allow-modals"
    for directive in ("default-src", "style-src", "script-src", "base-uri", "form-action", "frame-ancestors"):
        assert f"{directive} 'none'" in policy
    assert 'href="report"' in Client(application).get("/").text
    assert Client(app()).get("/report").status_code == 404
    assert 'href="report"' not in Client(app()).get("/").text
    assert Client(app()).request("HEAD", "/").status_code == 200


def test_the_report_may_run_its_own_script_and_style_and_nothing_else(tmp_path):
    write_report(evaluate_table(model(), table()), tmp_path / "report.html", title="<script>alert(1)</script>")
    page = (tmp_path / "report.html").read_text()
    header = Client(create_app(model(), report=tmp_path / "report.html")).get("/report").headers
    own = html.unescape(re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    policy = header["content-security-policy"]
    assert policy == f"sandbox allow-scripts allow-modals; {own}; frame-ancestors 'none'"
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


# Limits ---------------------------------------------------------------------------------------------------------------


async def in_pieces(body, size=100):
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def never_ends(start=b"{"):
    yield start
    await asyncio.Event().wait()


@pytest.mark.parametrize("content", [lambda body: body, in_pieces], ids=["at once", "in pieces"])
def test_a_body_too_large_is_refused_however_it_comes(content):
    body = json.dumps(good()).encode()
    fits = Client(app(max_bytes=len(body)), **JSON).post("/decide", content=content(body))
    refused = Client(app(max_bytes=len(body) - 1), **JSON).post("/decide", content=content(body))
    assert (fits.status_code, refused.status_code) == (200, 413)
    assert f"more than {len(body) - 1:,} bytes" in refused.json()["error"]


def posts(served, *contents):
    async def all_at_once():
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=JSON) as one:
            return await asyncio.gather(*(one.post("/decide", content=content) for content in contents))

    return asyncio.run(all_at_once())


def test_bodies_that_do_not_arrive_time_out_and_do_not_block_others():
    served = create_app(model(), max_seconds=0.05)
    *slow, answered = posts(served, *(never_ends() for _ in range(200)), json.dumps(good()))
    assert answered.status_code == 200
    assert {one.status_code for one in slow} == {408}
    assert slow[0].json()["error"] == "the body did not arrive within 0.05 seconds."


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/decide", 405), ("GET", "/no", 404), ("PUT", "/", 405), ("POST", "/decide/", 404)],
)
def test_other_paths_and_methods_are_refused_in_words(method, path, status):
    response = Client(app()).request(method, path)
    assert response.status_code == status
    assert list(response.json()) == ["error"]


@pytest.fixture(scope="module")
def limited():
    return create_app(model(), allowed_hosts=["models.example.org", "fd00::5", "*.example.net"])


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("models.example.org", True),
        ("MODELS.example.org:443", True),
        ("[fd00::5]:8000", True),
        ("any.example.net", True),
        ("fd00::5", False),
        ("evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("localhost.evil.example.org:8000", False),
    ],
)
def test_a_foreign_host_name_is_refused(limited, host, known):
    assert Client(limited, host=host).get("/health").status_code == (200 if known else 400)


@pytest.mark.parametrize("name", ["https://models.example.org", "models.example.org:443", "a*", "", "*.*"])
def test_what_is_no_host_name_is_refused(name):
    with pytest.raises(InputError, match="is not a host name: leave out scheme and port"):
        create_app(model(), allowed_hosts=[name])


def test_any_host_name_may_be_allowed():
    served = create_app(model(), allowed_hosts=["*"])
    assert Client(served, host="anything.example").get("/health").status_code == 200


# Keys -----------------------------------------------------------------------------------------------------------------

KEYS = ("first-key-of-two", "second-key-of-two")


def basic(password):
    return "Basic " + base64.b64encode(b"me:" + password.encode()).decode()


@pytest.fixture(scope="module")
def guarded():
    return create_app(model(), api_keys=KEYS)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key-of-two"},
        {"Authorization": "bearer second-key-of-two"},
        {"X-API-Key": "first-key-of-two"},
        {"Authorization": basic("first-key-of-two")},
        {"X-API-Key": "wrong", "Authorization": "Bearer first-key-of-two"},
    ],
)
def test_a_key_opens(guarded, headers):
    assert Client(guarded, **headers).post("/decide", json=good()).status_code == 200


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
    for body in (json.dumps(good()), "{"):
        answer = Client(guarded, **headers, **JSON).post("/decide", content=body)
        assert answer.status_code == 401
    assert "Basic" in answer.headers["www-authenticate"]
    assert list(answer.json()) == ["error"]


def test_without_a_key_nothing_is_told_of_the_model(guarded):
    for path in ("/", "/metrics", "/openapi.json", "/docs"):
        assert Client(guarded).get(path).status_code == 401, path
    assert Client(guarded).get("/health").json() == {"status": "ok"}
    assert Client(guarded).get("/ready").json() == {"status": "ready"}
    for path in ("/no/such", "/redoc", "/Ready"):
        assert Client(guarded).get(path).json() == {"error": "Not Found."}


def test_the_openapi_document_describes_the_keys(guarded):
    document = guarded.openapi()
    schemes = document["components"]["securitySchemes"]
    assert {one["type"] + one.get("scheme", "") for one in schemes.values()} == {"httpbearer", "httpbasic", "apiKey"}
    assert len(document["paths"]["/decide"]["post"]["security"]) == 3
    assert "security" not in document["paths"]["/ready"]["get"]


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# rotated in May\nnew-key\n\n old-key \n")
    assert read_api_keys(file, "unused") == ("new-key", "old-key")
    assert read_api_keys(None, None) == ()
    for content, words in (("", "holds no key"), ("# only\n", "holds no key"), ("a b\n", "a key may hold")):
        file.write_text(content)
        with pytest.raises(InputError, match=words) as refused:
            read_api_keys(file, None)
        assert "a b" not in str(refused.value)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="printable ASCII"):
        read_api_keys(file, None)


def test_a_service_that_stops_says_so_and_still_answers():
    stopping = []
    served = create_app(model(), stopping=lambda: bool(stopping))
    assert Client(served).get("/ready").status_code == 200
    stopping.append(True)
    answer = Client(served).get("/ready")
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
    assert ask(served, good()).status_code == 200


# Counts ---------------------------------------------------------------------------------------------------------------


def samples(text):
    """Read Prometheus's text format into values by name and labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(found, metric, **labels):
    return found[(metric, frozenset(labels.items()))]


def test_a_service_counts_what_it_answers():
    served = create_app(model())
    ask(served, good(30, cost=0.05))
    ask(served, {"rows": []})
    for _ in range(2):
        Client(served).get("/nothing/here")
    found = samples(Client(served).get("/metrics").text)
    for path, status, count in (("/decide", 200, 1), ("/decide", 422, 1), ("(other)", 404, 2)):
        assert value(found, "demur_requests_total", path=path, status=str(status)) == count
    assert value(found, "demur_request_seconds_count", path="/decide") == 2
    answers = model().answers(table().slice(0, 30), 0.05)
    rejected = sum(answers["rejected"].to_pylist())
    assert 0 < rejected < 30
    assert value(found, "demur_rows_total") == 30
    assert value(found, "demur_rows_rejected_total") == rejected
    expected = {}
    for row in answers.to_pylist():
        key = frozenset({"class": row["first_choice"], "rejected": str(row["rejected"]).lower()}.items())
        expected[key] = expected.get(key, 0) + 1
    assert {labels: count for (name, labels), count in found.items() if name == "demur_decisions_total"} == expected
    confidence = answers["confidence"].to_numpy()
    assert value(found, "demur_confidence_sum") == pytest.approx(confidence.sum())
    assert value(found, "demur_confidence_bucket", le="0.9") == (confidence <= 0.9).sum()
    assert value(found, "demur_model_info", name="lr", target="y", version=demur.__version__) == 1


def test_many_classes_are_not_counted_by_name():
    metrics = ServiceMetrics("m", "y", 5000)
    metrics.count_decisions([{"first_choice": k, "rejected": False, "confidence": 1.0} for k in range(5000)])
    assert value(samples(metrics.text().decode()), "demur_decisions_total", **{"class": "(any)", "rejected": "false"})


def test_a_service_that_is_mounted_below_another_answers_as_it_does_alone():
    served = create_app(model(), api_keys=["k" * 20])
    site = Client(Starlette(routes=[Mount("/pets", served)]), **{"X-API-Key": "k" * 20})
    below = site.post("/pets/decide", json=good())
    assert (below.status_code, below.json()) == (200, ask(create_app(model()), good()).json())
    assert site.get("/pets/ready").status_code == 200
    found = samples(site.get("/pets/metrics").text)
    assert value(found, "demur_requests_total", path="/decide", status="200") == 1


def test_middleware_around_the_service_sees_every_request():
    served, seen = create_app(model()), []

    class Around:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            seen.append(scope["path"])
            await self.app(scope, receive, send)

    served.add_middleware(Around)
    assert ask(served, good()).status_code == 200
    assert seen == ["/decide"]


# Ids and the log ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_id", ["", "a b", "\x1b[2J", "a" * 129, "ü", '"', "<b>", "-x"])
def test_an_id_that_is_not_safe_to_log_is_replaced(given_id):
    answer = Client(app()).get("/health", headers={"X-Request-ID": given_id.encode()})
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


def test_an_id_comes_back_also_with_a_refusal():
    served = create_app(model(), api_keys=["key"])
    for path, host in (("/health", "localhost"), ("/decide", "localhost"), ("/nothing", "localhost"), ("/", "evil")):
        answer = Client(served, host=host).get(path, headers={"X-Request-ID": "4bf92f-1:2"})
        assert answer.headers["x-request-id"] == "4bf92f-1:2"
    ids = {Client(served).get("/health").headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.parametrize("path", ["/x\nINFO request", "/\r\n2026-01-01 ERROR", "/\x1b[2J", "/\u2028x", "/\x85x"])
def test_no_request_can_write_its_own_log_line(caplog, path):
    caplog.set_level(logging.DEBUG, "demur.access")

    async def call():
        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_):
            pass

        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"k=v",
            "headers": [(b"host", b"localhost"), (b"x-request-id", b"1\nERROR"), (b"authorization", b"Bearer hush")],
            "client": ("127.0.0.1", 5), "scheme": "http", "root_path": "", "server": ("localhost", 80),
            "http_version": "1.1", "asgi": {"version": "3.0"},
        }  # fmt: skip
        await app()(scope, receive, send)

    asyncio.run(call())
    (record,) = (one for one in caplog.records if one.name == "demur.access")
    line = record.getMessage()
    assert line.isprintable()
    assert "hush" not in line
    assert "k=v" not in line
    assert json.loads(line.removeprefix("request "))["path"] == path


@pytest.mark.parametrize(("level", "n_lines"), [("DEBUG", 2), ("INFO", 1), ("WARNING", 0)])
def test_the_level_decides_what_is_logged(caplog, level, n_lines):
    caplog.set_level(level, "demur.access")
    Client(app()).get("/health")
    ask(app(), good())
    assert len([one for one in caplog.records if one.name == "demur.access"]) == n_lines


def test_one_text_is_not_a_list_of_keys_or_hosts():
    for name in ("api_keys", "allowed_hosts"):
        with pytest.raises(InputError, match="must be lists of strings"):
            create_app(model("lr"), **{name: "secret"})


def answered(served, headers, *messages):
    """Return the status of a request whose body arrives in these messages; no further one may be asked for."""
    waiting, sent = list(messages), []

    async def receive():
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/decide", "query_string": b""}
    asyncio.run(served({**scope, "headers": [(b"host", b"localhost"), *headers]}, receive, send))
    return sent[0]["status"]


def test_a_body_that_a_disconnect_cuts_off_is_not_decided():
    served = create_app(model())
    part = {"type": "http.request", "body": b"{", "more_body": True}
    assert answered(served, [], part, {"type": "http.disconnect"}) == 499
    assert value(samples(Client(served).get("/metrics").text), "demur_rows_total") == 0


def test_a_body_of_known_length_is_decided_without_the_message_that_ends_it():
    body = json.dumps(good()).encode()
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in (body[:9], body[9:])]
    assert answered(app(), [(b"content-length", str(len(body)).encode())], *parts) == 200


def test_times_with_a_zone_are_refused_and_new_categories_named_for_any_number_of_rows():
    rng = np.random.default_rng(0)
    x, times = rng.normal(size=200), [datetime.time(int(hour)) for hour in rng.integers(24, size=200)]
    columns = {"x": x, "kind": rng.choice(["a", "b"], 200), "at": times, "y": np.where(x > 0, "yes", "no")}
    served = create_app(fit_table(pa.table(columns), "y", model="lr", novelty=None))
    row = {"x": 1.0, "kind": "new", "at": "12:00"}
    for rows in ([row], [row] * 65):
        decided = ask(served, {"rows": rows}).json()["decisions"]
        assert {one["reason"] for one in decided} == {"new category: kind"}
    assert ask(served, {"row": {**row, "at": "12:00+05:00"}}).status_code == 422
