"""``demur serve`` as processes: how it starts, whom it keeps waiting, and how it stops."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from service_samples import good, model, table

from demur import RejectClassifier
from demur.cli.serve import _own_names, serve
from demur.deploy import save
from demur.errors import UserError

CALL = (sys.executable, "-m", "demur", "serve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("models") / "model"
    save(model(), target)
    return target


class Running:
    """``demur serve`` in a process of its own, its address, and a file with its log."""

    def __init__(self, folder, log, *options):
        self.log = log
        call = [*CALL, str(folder), "--port", "0", *options]
        with log.open("w") as stream:
            self.process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=stream, text=True,
                                            start_new_session=True)  # fmt: skip
        assert self.process.stdout.readline().startswith("Serving the model in "), log.read_text()
        self.port = int(re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())[1])

    def request(self, method, path, body=None, timeout=60, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ask(self, document=None, timeout=60):
        body = json.dumps(good(2) if document is None else document)
        return self.request("POST", "/decide", body, timeout, **{"Content-Type": "application/json"})

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def stop(self, sign=signal.SIGTERM):
        """Return what is printed last, and the exit code."""
        self.process.send_signal(sign)
        out, _ = self.process.communicate(timeout=60)
        return out.strip(), self.process.returncode


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "log"


@contextmanager
def running(folder, log, *options):
    service = Running(folder, log, *options)
    try:
        yield service
    finally:
        with suppress(ProcessLookupError):
            os.killpg(service.process.pid, signal.SIGKILL)  # the workers too, which hold its output open
        service.process.communicate()


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def answered(service):
    with suppress(ConnectionError):
        return service.ask()[0] == 200
    return False


def children(pid):
    """Return the worker processes."""
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]


def all_of(connection):
    received = b""
    while part := connection.recv(1 << 16):
        received += part
    return received


HEAD = b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.slow
def test_a_service_from_start_to_end(folder, log, monkeypatch):
    """One process for all that needs no other options."""
    key = "a-key-that-nobody-guesses"
    monkeypatch.setenv("DEMUR_API_KEY", key)
    with running(folder, log, "--drain-seconds", "2") as service:
        assert service.request("GET", "/health") == (200, '{"status":"ok"}')  # at once: the port opens when it answers
        own = {"X-API-Key": key, "Content-Type": "application/json"}
        status, body = service.request("POST", "/decide", json.dumps(good(5, cost=0.6)), **own)
        assert status == 200
        with pytest.warns(match="cost 0.6 is 1/2 or more"):
            expected = model().answers(table().slice(0, 5), 0.6).to_pylist()
        assert [one["prediction"] for one in json.loads(body)["decisions"]] == [one["prediction"] for one in expected]
        assert service.request("POST", "/decide", "{", **own)[0] == 422
        assert service.request("GET", f"/?key={key}")[0] == 401

        # two lengths: the connection is closed, and what follows is not answered as another request
        with service.connect() as connection:
            hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
            received = all_of(connection)
        assert received.count(b"HTTP/1.1 ") <= 1
        assert b'"ok"' not in received

        # on SIGTERM it goes on for two seconds, with /ready at 503
        service.process.send_signal(signal.SIGTERM)
        until(lambda: service.request("GET", "/ready")[0] == 503)
        assert service.request("GET", "/health")[0] == 200
        out, _ = service.process.communicate(timeout=60)
        assert (service.process.returncode, out.strip()) == (0, "Stopped.")
    written = [line.partition(" INFO request ")[2] for line in log.read_text().splitlines()]
    assert key not in log.read_text()
    requests = [json.loads(line) for line in written if line]
    assert [one["status"] for one in requests][:3] == [200, 422, 401]  # no probes
    assert list(requests[0]) == ["id", "client", "method", "path", "status", "ms"]
    assert (requests[0]["client"], requests[0]["method"], requests[0]["path"]) == ("127.0.0.1", "POST", "/decide")


@pytest.mark.slow
def test_idle_and_slow_clients_do_not_block_others(folder, log):
    with running(folder, log, "--log-level", "error") as service, ExitStack() as slow:
        assert service.ask()[0] == 200
        for start in (b"", b"POST /dec", HEAD + b'Content-Length: 4900000\r\n\r\n{"rows": ['):
            waiting = [slow.enter_context(service.connect()) for _ in range(150)]
            for connection in waiting:
                connection.sendall(start)
            if start == b"POST /dec":
                late = waiting[0]
        for _ in range(20):
            assert service.ask(timeout=5)[0] == 200
        assert all_of(late) == b""  # a head that does not come is given up
        assert service.stop() == ("Stopped.", 0)
    assert log.read_text() == ""


@pytest.mark.slow
def test_workers_are_replaced_and_stopped_without_losing_requests(tmp_path, folder, log):
    own = tmp_path / "model"
    shutil.copytree(folder, own)
    with running(own, log, "--workers", "2", "--audit", "0.5") as service:
        outcomes, ended = [], threading.Event()

        def client():
            while not ended.is_set():
                try:
                    outcomes.append(service.ask()[0])
                except OSError as error:
                    outcomes.append(error)

        clients = [threading.Thread(target=client) for _ in range(3)]
        until(lambda: len(children(service.process.pid)) == 2)
        for one in clients:
            one.start()
        until(lambda: len(outcomes) > 50)
        ended.set()
        for one in clients:
            one.join()
        assert set(outcomes) == {200}
        until(lambda: f"demur_rows_total {2.0 * len(outcomes)}\n" in service.request("GET", "/metrics")[1])

        # a worker that is killed is replaced
        before = children(service.process.pid)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(set(children(service.process.pid)) - {before[0]}) == 2)
        until(lambda: answered(service))  # the other worker may still have been loading the model

        # requests that arrive before SIGTERM are answered
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(service.ask(good(60))[0])) for _ in range(8)]
        for one in threads:
            one.start()
        time.sleep(0.5)
        assert service.stop() == ("Stopped.", 0)
        for one in threads:
            one.join()
        assert answers == [200] * 8
    for line in log.read_text().splitlines():
        assert " INFO request {" in line or "Unexpected exit from worker" in line


@pytest.mark.slow
def test_a_damaged_model_fails_at_once_in_words(tmp_path, folder):
    own = tmp_path / "model"
    shutil.copytree(folder, own)
    archive = own / "model.skops"
    archive.write_bytes(archive.read_bytes()[:-100])
    call = [*CALL, str(own), "--port", "0", "--workers", "2"]
    found = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("demur: ")
    assert "Traceback" not in found.stderr


def test_a_port_that_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=f"cannot listen on 127.0.0.1, port {port} .*choose another --host or --port"
        ):
            serve(folder, port=port)


def test_paths_without_a_model_are_refused(tmp_path):
    with pytest.raises(UserError, match="is not a demur model"):
        serve(tmp_path)
    save(RejectClassifier(), tmp_path / "bare")
    with pytest.raises(UserError, match="was not fitted on named columns"):
        serve(tmp_path / "bare")


def test_a_machine_whose_own_name_has_no_address_is_known_by_its_name(monkeypatch):
    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert _own_names("0.0.0.0") == (socket.gethostname(),)


def test_an_address_that_is_none(folder):
    with pytest.raises(UserError, match="cannot listen on no such host, port 0"):
        serve(folder, host="no such host", port=0)


@pytest.mark.parametrize("module", ["fastapi", "granian.server", "jinja2", "prometheus_client"])
def test_a_missing_extra_is_named(folder, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    if module in ("fastapi", "prometheus_client"):  # which are imported with it
        monkeypatch.delitem(sys.modules, "demur.deploy.web_service", raising=False)
    with pytest.raises(UserError, match=r"pip install demur\[serve\]"):
        serve(folder, port=0)
