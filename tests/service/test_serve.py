"""The command, as a process of its own."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from service_samples import good, model, table

from demur import RejectClassifier
from demur.cli.console import CallError
from demur.cli.serve import serve
from demur.deploy import save

CALL = (sys.executable, "-m", "demur", "serve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("models") / "model"
    save(model(), target)
    return target


@pytest.mark.slow
def test_a_service_from_start_to_end(folder):
    process = subprocess.Popen(
        [*CALL, str(folder), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline().startswith("Serving lr for 'y', 3 classes, from")
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        with urllib.request.urlopen(f"{address}/health", timeout=60) as response:
            assert json.load(response)["status"] == "ok"
        headers = {"Content-Type": "application/json"}
        body = json.dumps(good(5, cost=0.6)).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{address}/decide", body, headers), timeout=60) as response:
            answer = json.load(response)
        with pytest.warns(match="cost 0.6 is 1/2 or more"):
            assert answer["decisions"] == model().answers(table().slice(0, 5), 0.6).to_pylist()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{address}/decide", b"{", headers), timeout=60)
        assert refused.value.code == 400
        assert "not JSON" in json.load(refused.value)["error"]
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out.strip()) == (0, "Stopped.")
    told = [line.partition(" INFO request ")[2] for line in errors.splitlines()]
    assert len(told) == 2  # whoever watches the health is not in the log
    assert re.fullmatch(r'id=[0-9a-f]{32} client=127\.0\.0\.1 method=POST path="/decide" status=200 ms=[\d.]+', told[0])
    assert "status=400" in told[1]


def test_a_port_that_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CallError, match=f"cannot listen at 127.0.0.1, port {port}: .*; choose another with --port"):
            serve(folder, port=port)


def test_what_is_no_model(tmp_path):
    with pytest.raises(CallError, match="is not a demur model"):
        serve(tmp_path)
    save(RejectClassifier(), tmp_path / "bare")
    with pytest.raises(CallError, match="was not fitted on named columns"):
        serve(tmp_path / "bare")


def test_an_address_that_is_none(folder):
    with pytest.raises(CallError, match="there is no address 'no such host' to listen at"):
        serve(folder, host="no such host", port=0)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "jinja2"])
def test_a_missing_extra_is_named(folder, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CallError, match=r"pip install demur\[serve\]"):
        serve(folder, port=0)
