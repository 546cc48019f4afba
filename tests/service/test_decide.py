"""What the service answers is what the model answers."""

import html
import json
import re

import joblib
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_samples import CLASSES, HOSTILE, app, ask, good, json_rows, model, send, table, wrapped

from demur import Chow, CostMatrix, Coverage, RiskControl, Threshold
from demur.deploy import create_app
from demur.deploy.decider import Decider
from demur.tabular import ANSWER_COLUMNS, TableModel, evaluate_table, fit_table, write_report

SERVED = {
    "lr": model,
    "ce": lambda: model("ce"),
    **{name: lambda name=name: wrapped(name) for name in ("forest", "extra trees", "boosting", "blend")},
}


@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=6)
@given(rows=st.lists(st.integers(0, 89), min_size=1, max_size=80), cost=st.sampled_from([None, 0.0, 0.05, 0.3, 0.49]))
def test_the_same_decisions_as_the_model_to_the_last_bit(name, rows, cost):
    served = SERVED[name]()
    chosen = table().take(rows)
    body = {"rows": json_rows(chosen)} | ({} if cost is None else {"cost": cost})
    answer = json.loads(Decider(served, 1000).answer(json.dumps(body).encode()))
    with joblib.parallel_config("sequential"):  # a forest adds up in the order in which its threads end
        expected = served.answers(chosen, cost).to_pylist()
    assert answer["decisions"] == expected
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


def test_a_large_request_gets_what_its_rows_get():
    rows = table().take([k % 90 for k in range(900)])
    document = {"rows": json_rows(rows)}
    assert len(json.dumps(document)) > 1 << 16  # which another thread decides
    assert ask(app(), document).json()["decisions"] == model().answers(rows).to_pylist()


def test_what_is_declined_has_no_prediction():
    decisions = ask(app(), good(90, cost=0.1)).json()["decisions"]
    assert {one["rejected"] for one in decisions} == {True, False}
    for one in decisions:
        assert one["prediction"] == (None if one["rejected"] else one["first_choice"])
        assert one["first_choice"] in CLASSES
        assert one["second_choice"] != one["first_choice"]


def test_columns_that_the_model_does_not_use_may_be_there_or_not():
    served = model()
    row = json_rows(table().slice(5, 1))[0]
    assert {"y", "row_id"} <= row.keys()
    bare = {name: row[name] for name in served.schema.names}
    assert ask(app(), {"row": row}).json() == ask(app(), {"row": bare}).json()


def test_the_order_of_names_does_not_matter():
    row = json_rows(table().slice(5, 1))[0]
    assert ask(app(), {"row": row}).json() == ask(app(), {"row": dict(reversed(row.items()))}).json()


def test_an_unseen_category_is_what_it_is_for_the_model():
    row = json_rows(table().slice(5, 1))[0] | {HOSTILE: "unheard of"}
    new = table().slice(5, 1).set_column(1, HOSTILE, pa.array(["unheard of"]))
    assert ask(app(), {"row": row}).json()["decisions"] == model().answers(new).to_pylist()


def test_a_cost_that_is_fixed_may_be_named_but_not_changed():
    served = model("ova+hin")
    application = create_app(served)
    assert ask(application, good()).json()["cost"] == 0.2
    assert ask(application, good(cost=0.2)).status_code == 200
    refused = ask(application, good(cost=0.1))
    assert refused.status_code == 422
    assert refused.json() == {"error": f"this model cannot decide for another cost: {served.why_cost_fixed}."}
    with pytest.raises(ValueError, match="cannot decide for another cost") as error:
        served.answers(table(), 0.1)
    assert str(error.value) == refused.json()["error"]


def test_a_rule_of_its_own_fixes_the_cost():
    served = fit_table(table(), "y", model="lr", rule=Threshold(0.6))
    application = create_app(served)
    assert "Threshold" in ask(application, good(cost=0.1)).json()["error"]
    assert ask(application, good(9)).json()["decisions"] == served.answers(table().slice(0, 9)).to_pylist()


MATRIX = np.c_[1 - np.eye(3), np.full(3, 0.2)]


@pytest.mark.parametrize("rule", [Coverage(0.7), RiskControl(0.6, delta=0.3), CostMatrix(MATRIX)], ids=repr)
def test_issue_12_3_a_model_without_one_cost_answers_none_and_takes_none(rule):
    served = fit_table(table(), "y", model="lr", rule=rule)
    application = create_app(served)
    answer = ask(application, good(9)).json()
    assert answer["cost"] is None
    assert answer["decisions"] == served.answers(table().slice(0, 9)).to_pylist()
    assert ask(application, good(cost=None)).json()["cost"] is None
    for cost in (0.2, 0.1):
        refused = ask(application, good(cost=cost))
        assert refused.status_code == 422
        assert refused.json() == {"error": f"this model cannot decide for another cost: {served.why_cost_fixed}."}
    (page,) = send(application, {}, path="/", method="GET")
    assert "cost-slider" not in page.text.split("<script")[0]
    assert "The cost cannot be moved here" in page.text


def test_issue_12_3_the_cost_of_a_rule_is_the_cost():
    application = create_app(fit_table(table(), "y", model="lr", rule=Chow(0.3)))
    assert ask(application, good()).json()["cost"] == 0.3


@pytest.mark.filterwarnings("ignore::demur.costs.CostWarning")
def test_a_cost_from_one_half_on_is_legal():
    assert ask(app(), good(cost=0.99)).json()["decisions"] == model().answers(table().slice(0, 1), 0.99).to_pylist()


@pytest.mark.parametrize("labels", [[3, 5], [True, False], [0.5, 1.5]])
def test_classes_keep_their_type(labels):
    rows = pa.table({"size": [0.0, 0.1, 0.2, 5.0, 5.1, 5.2] * 5, "y": [*[labels[0]] * 3, *[labels[1]] * 3] * 5})
    application = create_app(fit_table(rows, "y", model="lr"))
    answers = ask(application, {"rows": [{"size": 0}, {"size": 5}]}).json()["decisions"]
    assert [one["prediction"] for one in answers] == labels
    assert type(answers[0]["prediction"]) is type(labels[0])


def test_health():
    (response,) = send(app(), {}, path="/health", method="GET")
    facts = response.json()
    assert (facts["status"], facts["model"], facts["target"], facts["n_classes"]) == ("ok", "lr", "y", 3)
    assert facts["uptime_seconds"] >= 0


def test_a_defect_of_the_model_is_logged_and_the_service_lives(monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(TableModel, "answers", broken)
        patched.setattr(TableModel, "quick", broken)
        failed = ask(app(), good())
    assert failed.status_code == 500
    assert failed.json() == {"error": "the service failed on this request; its log says why."}
    assert "out of order" in caplog.text
    assert "Traceback" in caplog.text
    assert ask(app(), good()).status_code == 200


def test_the_report_is_shown_without_the_rights_of_the_service(tmp_path):
    (tmp_path / "report.html").write_text("<h1>good</h1>")
    application = create_app(model(), report=tmp_path / "report.html")
    (shown,) = send(application, {}, path="/report", method="GET")
    assert shown.text == "<h1>good</h1>"
    policy = shown.headers["content-security-policy"].split("; ")
    assert policy[0] == "sandbox allow-scripts allow-modals"
    for directive in ("default-src", "style-src", "script-src", "base-uri", "form-action", "frame-ancestors"):
        assert f"{directive} 'none'" in policy
    (page,) = send(application, {}, path="/", method="GET")
    assert 'href="report"' in page.text
    (none,) = send(app(), {}, path="/report", method="GET")
    assert none.status_code == 404
    (page,) = send(app(), {}, path="/", method="GET")
    assert 'href="report"' not in page.text


def test_the_report_may_run_its_own_script_and_style_and_nothing_else(tmp_path):
    evaluation = evaluate_table(model(), table())
    write_report(evaluation, tmp_path / "report.html", title="<script>alert(1)</script>")
    page = (tmp_path / "report.html").read_text()
    application = create_app(model(), report=tmp_path / "report.html")
    (shown,) = send(application, {}, path="/report", method="GET")
    header = shown.headers["content-security-policy"]
    own = html.unescape(re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    assert header == f"sandbox allow-scripts allow-modals; {own}; frame-ancestors 'none'"
    assert "unsafe" not in header
    assert header.count("'sha256-") == 2


@pytest.mark.parametrize("limits", [{"max_rows": 0}, {"max_bytes": -1}])
def test_limits_must_leave_room(limits):
    with pytest.raises(ValueError, match="must be at least 1"):
        create_app(model(), **limits)
