"""Connections that mean no good, and how the service stops."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn
from service_samples import good, model

from demur.deploy import save
from demur.deploy.serving import _Joining, limited_protocol

CALL = (sys.executable, "-m", "demur", "serve")


async def hello(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextmanager
def serving(seconds_for_head, most_connections):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        protocol = limited_protocol(seconds_for_head, most_connections)
        server = uvicorn.Server(uvicorn.Config(hello, http=protocol, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def port():
    """A server that gives a head half a second."""
    with serving(0.5, 100) as taken:
        yield taken


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def all_of(connection):
    received = b""
    while part := connection.recv(1 << 16):
        received += part
    return received


WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_a_head_that_does_not_come_is_given_up(port, start):
    with connected(port) as connection:
        connection.sendall(start)
        assert all_of(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_so_is_that_of_a_later_request(port):
    with connected(port) as connection:
        connection.sendall(WHOLE)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"GET")
        assert b"408" in all_of(connection)


@pytest.mark.slow
def test_a_whole_head_has_time(port):
    with connected(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1")
        time.sleep(1.0)
        connection.sendall(b"2")
        received = b""
        while b"hi" not in received:  # head and body may come apart
            part = connection.recv(1 << 16)
            assert part
            received += part


@pytest.mark.slow
def test_the_oldest_that_waits_makes_way():
    with ExitStack() as stack:
        port = stack.enter_context(serving(600, 20))
        busy = stack.enter_context(connected(port))
        idle = [stack.enter_context(connected(port)) for _ in range(19)]
        busy.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n12")
        assert b"200 OK" in busy.recv(1 << 16)
        newest = [stack.enter_context(connected(port)) for _ in range(3)]
        for connection in newest:
            connection.sendall(WHOLE)
            assert b"200 OK" in connection.recv(1 << 16)
        assert all_of(idle[0]).startswith(b"HTTP/1.1 503 ")


class Running:
    """``demur serve`` in a process of its own."""

    def __init__(self, folder, *options):
        call = [*CALL, str(folder), "--port", "0", "--log-level", "error", *options]
        self.process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.port = int(self.process.stdout.readline().split()[1].rpartition(":")[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def ask(self, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            body, headers = json.dumps(good(2)), {"Content-Type": "application/json"}
            connection.request("POST", "/decide", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("models") / "model"
    save(model(), target)
    return target


HEAD = b"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4900000\r\n\r\n"


@pytest.mark.slow
def test_issue_17_slow_sockets_keep_no_good_client_waiting(folder):
    with Running(folder) as service, ExitStack() as slow:
        assert service.ask() == 200
        for start in (b"", b"POST /dec", HEAD + b'{"rows": ['):
            for _ in range(50):
                slow.enter_context(connected(service.port)).sendall(start)
        for _ in range(20):
            assert service.ask(timeout=2) == 200  # it is quick, or the client gives up
        service.process.send_signal(signal.SIGTERM)
        out, errors = service.process.communicate(timeout=60)
        assert (service.process.returncode, errors) == (0, "")
        assert out.strip() == "Stopped."


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_issue_17_a_signal_to_stop_loses_no_request(folder, options):
    with Running(folder, *options) as service:
        assert service.ask(timeout=120) == 200
        outcomes, told = [], threading.Event()

        def client():
            while not told.is_set():
                before = time.monotonic()
                try:
                    outcomes.append((before, service.ask()))
                except OSError as error:
                    outcomes.append((before, error))

        clients = [threading.Thread(target=client) for _ in range(6)]
        for one in clients:
            one.start()
        time.sleep(2)
        signalled = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        told.set()
        for one in clients:
            one.join()
        service.process.communicate(timeout=60)
    lost = [outcome for before, outcome in outcomes if before < signalled and outcome != 200]
    assert len(outcomes) >= 6
    assert not lost
    assert service.process.returncode == 0


class Told:
    """A transport that remembers what it is told."""

    def __init__(self):
        self.calls = []

    def write(self, data):
        self.calls.append(data)

    def close(self):
        self.calls.append("close")

    def is_closing(self):
        return "close" in self.calls


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(("writes", "sent"), [
    ([HEAD, b"body", b""], [HEAD + b"body", b""]),
    ([HEAD, b"", b""], [HEAD, b""]),  # to HEAD there is no body
    ([b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"5\r\n"], [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + b"5\r\n"]),
    ([HEAD, b"a", b"HTTP/1.1 2", b""], [HEAD + b"a", b"HTTP/1.1 2"]),  # a body that looks like a head
    ([b"HTTP/1.1 408 Request Timeout\r\n\r\n"], [b"HTTP/1.1 408 Request Timeout\r\n\r\n"]),
    ([HEAD], [HEAD]),  # and closed without a body
])  # fmt: skip
def test_a_head_goes_out_with_what_follows_and_nothing_is_kept_back(writes, sent):
    told = Told()
    joining = _Joining(told)
    for data in writes:
        joining.write(data)
    joining.close()
    assert told.calls == [*sent, "close"]
    assert joining.is_closing()
