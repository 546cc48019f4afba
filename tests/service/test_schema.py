"""The service keeps to its own OpenAPI document, which schemathesis reads and tries."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import app, covering, good, model, send

from demur.deploy import create_app

SERVED = {
    "free cost": cache(lambda: create_app(model(), allowed_hosts=["*"])),
    "fixed cost": cache(lambda: create_app(model("ova+hin"), allowed_hosts=["*"])),
    "no cost": cache(lambda: create_app(covering(), allowed_hosts=["*"])),
    "audits": cache(lambda: create_app(model(), audit=0.5, allowed_hosts=["*"])),
}


@cache
def document(name):
    import schemathesis  # it takes seconds to import

    # OpenAPI's registry has both; schemathesis does not know them by itself
    schemathesis.openapi.format("date-time-local", st.datetimes().map(lambda moment: moment.isoformat()))
    schemathesis.openapi.format("time-local", st.times().map(lambda moment: moment.isoformat()))
    return schemathesis.openapi.from_asgi("/openapi.json", SERVED[name]())


def keeps_to_the_document(name, mode, n_examples):
    from schemathesis import GenerationMode

    seen = set()
    operation = document(name)["/decide"]["POST"]

    @settings(max_examples=n_examples, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    def check(case):
        response = case.call()
        seen.add(response.status_code)
        if response.status_code != 413:  # too many rows, which schemathesis does not take for a refusal
            case.validate_response(response)

    check()
    assert seen == {200} if mode == "positive" else 200 not in seen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::demur.costs.CostWarning")
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("name", SERVED)
def test_decide_keeps_to_the_document_of_every_kind_of_model(name, mode):
    keeps_to_the_document(name, mode, 40)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/health"])
def test_what_is_read_keeps_to_the_document(path):
    @settings(max_examples=3, suppress_health_check=list(HealthCheck), database=None)
    @given(case=document("free cost")[path]["GET"].as_strategy())
    def check(case):
        assert case.call_and_validate().status_code == 200

    check()


def test_the_document_names_every_column_and_limit():
    (response,) = send(app(), {}, path="/openapi.json", method="GET")
    found = response.json()
    row = found["components"]["schemas"]["Row"]
    assert row["required"] == list(model().schema.names)
    assert set(row["properties"]) == set(good()["rows"][0])
    assert row["properties"]["row_id"]["description"].startswith("Not used: it looks like an identifier")
    assert found["components"]["schemas"]["ManyRows"]["properties"]["rows"]["maxItems"] == 10_000
    assert set(found["paths"]) == {"/", "/decide", "/health", "/metrics", "/ready"}
