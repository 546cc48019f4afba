"""The service as a process of its own, under load: a newer model, a key, a stop that is announced."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from demur.deploy import save
from demur.tabular import fit_table

pytestmark = pytest.mark.slow


def model_of(cost):
    size = np.random.default_rng(0).normal(size=300)
    return fit_table(pa.table({"size": size, "y": np.where(size > 0.1, "large", "small")}), "y", model="lr", cost=cost)


@contextmanager
def service(folder, *options, environment=None):
    """Start the service, and give its port and its process; its log goes to a file, as nobody reads it here."""
    log = folder.parent / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "demur", "serve", str(folder), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env=environment,
        )
        try:
            process.stdout.readline()
            yield int(re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[1]), process, log
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def get(port, path, **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Load(threading.Thread):
    """Asks for decisions, one after another over one connection, until told to end."""

    def __init__(self, port):
        super().__init__()
        self.port, self.costs, self.wrong, self.ended = port, [], [], threading.Event()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"row": {"size": 0.3}})
        while not self.ended.is_set():
            connection.request("POST", "/decide", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            if response.status == 200:
                self.costs.append(answer["cost"])
            else:
                self.wrong.append((response.status, answer))
        connection.close()


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def test_a_newer_model_takes_over_under_load_and_no_request_is_lost(tmp_path):
    folder = tmp_path / "model"
    save(model_of(0.1), folder)
    with service(folder, "--reload") as (port, process, log):
        clients = [Load(port) for _ in range(3)]
        for client in clients:
            client.start()
        until(lambda: all(len(client.costs) > 20 for client in clients))
        save(model_of(0.3), folder, overwrite=True)
        until(lambda: all(client.costs[-1] == 0.3 for client in clients))
        (folder / "model.skops").write_bytes(b"broken")
        until(lambda: "reload" in json.loads(get(port, "/ready")[1]))
        before = len(clients[0].costs)
        until(lambda: len(clients[0].costs) > before + 20)
        save(model_of(0.25), tmp_path / "other")
        for name in ("model.skops", "model.json"):  # as a copy does, one after another
            (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
        until(lambda: all(client.costs[-1] == 0.25 for client in clients))
        for client in clients:
            client.ended.set()
            client.join()
        for client in clients:
            assert client.wrong == []
            assert sorted(set(client.costs), key=client.costs.index) == [0.1, 0.3, 0.25]
        text = get(port, "/metrics")[1]
        n_asked = sum(len(client.costs) for client in clients)
        assert f'demur_requests_total{{path="/decide",status="200"}} {n_asked}\n' in text
        assert f"demur_rows_total {n_asked}\n" in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    written = log.read_text().splitlines()
    assert sum(" request " in line for line in written) == n_asked
    assert sum("cannot be loaded, and the one before answers" in line for line in written) >= 1


def test_a_stop_is_announced_before_it_comes(tmp_path):
    folder = tmp_path / "model"
    save(model_of(0.1), folder)
    with service(folder, "--drain-seconds", "4", "--log-json") as (port, process, log):
        client = Load(port)
        client.start()
        until(lambda: len(client.costs) > 5)
        process.send_signal(signal.SIGTERM)
        until(lambda: get(port, "/ready")[0] == 503)
        answered = len(client.costs)
        until(lambda: len(client.costs) > answered)
        client.ended.set()
        client.join()
        assert process.wait(60) == 0
        assert client.wrong == []
    for line in log.read_text().splitlines():
        assert json.loads(line)["path"] == "/decide"


def test_a_key_from_the_environment_is_in_no_log(tmp_path, monkeypatch):
    folder, key = tmp_path / "model", "a-key-that-nobody-guesses"
    save(model_of(0.1), folder)
    monkeypatch.setenv("DEMUR_API_KEY", key)
    with service(folder, "--log-level", "debug") as (port, process, log):
        assert get(port, f"/?key={key}")[0] == 401
        assert get(port, "/metrics", Authorization=f"Bearer {key}")[0] == 200
        assert get(port, "/ready")[0] == 200
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert "status=401" in log.read_text()
    assert key not in log.read_text()


def test_workers_tell_the_sum_of_what_they_count(tmp_path):
    folder = tmp_path / "model"
    save(model_of(0.1), folder)
    body, headers = json.dumps({"row": {"size": 0.3}}), {"Content-Type": "application/json"}
    with service(folder, "--workers", "2", "--drain-seconds", "1") as (port, process, _):
        until(lambda: _answers(port))
        asked = 0
        for _ in range(40):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/decide", body, headers)
            assert connection.getresponse().read()
            connection.close()
            asked += 1
        until(lambda: f"\ndemur_rows_total {asked}\n" in get(port, "/metrics")[1])
        told = {re.search(r"demur_rows_total (\d+)", get(port, "/metrics")[1])[1] for _ in range(10)}
        assert told == {str(asked)}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def _answers(port):
    try:
        return get(port, "/ready")[0] == 200
    except OSError:
        return False
