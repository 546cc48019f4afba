"""How many single-row requests the service answers in a second, beside a bare FastAPI server of the same model.

The bare server is what one would write in an hour: FastAPI, pydantic, uvicorn, and ONNX Runtime with the graph that
demur exports. The same application is also run by granian, the server of demur. This process asks them in turn, over
several connections, and compares every answer with that of ``demur predict``. All share the cores of this machine. Run
it with ``python -m benchmarks service``.

``--soak 50000`` sends so many requests to the service alone, of one row and of several, and watches its memory.
``--presets --data DIR`` fits the presets "fast" and "default" on tables of that folder, and prints the processor time
of one row inside the service, without HTTP.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from demur.deploy import load, save
from demur.deploy.onnx import export_onnx
from demur.tabular import fit_table

MODELS = ("ce", "auto")
CONNECTIONS = (1, 8, 32)
N_BODIES = 50
BARE = """
import json, socket, sys
from typing import Any
import numpy as np
import onnxruntime as ort
from fastapi import FastAPI
from pydantic import BaseModel

ort.set_default_logger_severity(3)
options = ort.SessionOptions()
options.intra_op_num_threads = 1  # threads that share the work of one row take longer
session = ort.InferenceSession(sys.argv[1], options)
classes = json.loads(sys.argv[2])
kinds = {one.name: object if "string" in one.type else np.float64 for one in session.get_inputs() if one.name != "cost"}
app = FastAPI()


class Question(BaseModel):
    row: dict[str, float | str | bool | None]
    cost: float = 0.2


@app.post("/decide")
async def decide(question: Question) -> dict[str, Any]:
    inputs = {name: np.array([[question.row[name]]], dtype=kind) for name, kind in kinds.items()}
    inputs["cost"] = np.array(question.cost)
    label, reject, confidence, proba = session.run(None, inputs)
    first, second = np.argsort(-proba[0])[:2]
    return {
        "prediction": None if reject[0] else classes[first],
        "rejected": bool(reject[0]),
        "confidence": float(confidence[0]),
        "first_choice": classes[first],
        "second_choice": classes[second],
    }


def application():
    return app


if __name__ == "__main__":
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # as uvicorn makes its own
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    print("bare server", flush=True)
    print(f"http://127.0.0.1:{port}", flush=True)
    if sys.argv[3] == "uvicorn":
        import uvicorn

        listening.listen()
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
    else:
        import multiprocessing

        from granian.constants import HTTPModes, Interfaces
        from granian.server import Server

        listening.close()
        multiprocessing.set_start_method("spawn", force=True)
        options = {"interface": Interfaces.ASGINL, "http": HTTPModes.http1, "websockets": False, "log_enabled": False}
        Server("bare", "127.0.0.1", port, **options).serve(target_loader=application, wrap_loader=False)
"""


def rows(n=2000, seed=0):
    """Twelve numbers, two categories and a truth value; three classes."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 12))
    pet, flag = rng.choice(["cat", "dog", "newt", "owl"], n), rng.random(n) < 0.5
    scores = np.c_[numbers[:, 0] + (pet == "cat"), numbers[:, 1], numbers[:, 2] + flag] + rng.gumbel(size=(n, 3))
    columns = {f"x{k}": numbers[:, k] for k in range(12)}
    columns |= {"pet": pet, "city": rng.choice([f"city {k}" for k in range(120)], n), "flag": flag}
    return pa.table({**columns, "y": np.array(["ant", "bee", "cow"])[scores.argmax(axis=1)]})


class Server:
    """A server in a process of its own, which prints its address on its second line."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)  # fmt: skip # a line for each request
        self.process.stdout.readline()
        self.port = int(re.search(r"http://[\d.]+:(\d+)", self.process.stdout.readline())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def wait(self):
        """Wait until the server accepts connections."""
        for _ in range(300):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.1)
        raise SystemExit("a server did not start")

    def processes(self):
        """Return the process and its workers."""
        workers = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return [Path(f"/proc/{number}") for number in (self.process.pid, *workers)]

    def cpu(self):
        """Return the CPU seconds so far; on a busy machine they vary less than the time that passes."""
        ticks = [(one / "stat").read_text().rpartition(")")[2].split()[11:13] for one in self.processes()]
        return sum(map(int, np.ravel(ticks))) / os.sysconf("SC_CLK_TCK")

    def megabytes(self):
        found = [re.search(r"VmRSS:\s+(\d+)", (one / "status").read_text()) for one in self.processes()]
        return sum(int(one[1]) for one in found) / 1e3


def serve(folder):
    return "-m", "demur", "serve", str(folder), "--port", "0"


def fitted(name, folder):
    """Fit and save a model that has an ONNX form: LightGBM and CatBoost have none, and so are not candidates."""
    sys.modules |= {"lightgbm": None, "catboost": None}
    save(fit_table(rows(), "y", model=name, time_budget=60), folder / name)
    return load(folder / name)


def near(answer, own):
    """Compare a decision with that of the model: the same, with the confidence within 1e-6."""
    return answer["rejected"] == own["rejected"] and abs(answer["confidence"] - own["confidence"]) < 1e-6


def request(document):
    body = json.dumps(document).encode()
    head = f"POST /decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


class Load:
    """Asks a server over several connections, each of which waits for its answer before it asks again."""

    def __init__(self, port, requests, check, connections):
        self.requests, self.check = requests, check
        self.selector = selectors.DefaultSelector()
        self.asked, self.errors, self.waits = 0, 0, []
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(connection, selectors.EVENT_READ, [0, 0.0, b""])

    def run(self, seconds=np.inf, most=np.inf):
        """Return requests a second, median and 99th percentile in milliseconds, and errors."""
        started = time.perf_counter()
        for key in list(self.selector.get_map().values()):
            self._ask(key)
        open_ = len(self.selector.get_map())
        while open_:
            for key, _ in self.selector.select(timeout=60):
                if self._answered(key):
                    if time.perf_counter() - started < seconds and self.asked < most:
                        self._ask(key)
                    else:
                        open_ -= 1
        spent = time.perf_counter() - started
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        p50, p99 = np.quantile(self.waits, [0.5, 0.99]) * 1e3
        return len(self.waits) / spent, p50, p99, self.errors

    def _ask(self, key):
        number = self.asked % len(self.requests)
        self.asked += 1
        key.data[:] = number, time.perf_counter(), b""
        key.fileobj.sendall(self.requests[number])

    def _answered(self, key):
        key.data[2] += key.fileobj.recv(1 << 20)
        head, _, body = key.data[2].partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is None or len(body) < int(length[1]):
            return False
        self.waits.append(time.perf_counter() - key.data[1])
        if not head.startswith(b"HTTP/1.1 200") or not self.check(key.data[0], body):
            self.errors += 1
        return True


def measure(name, folder, seconds, rounds, table):
    data, model = rows(), fitted(name, folder)
    graph, script = folder / f"{name}.onnx", folder / "bare.py"
    export_onnx(model, graph)
    script.write_text(BARE)
    some = data.drop(["y"]).slice(0, N_BODIES)
    requests = [request({"row": row, "cost": 0.1}) for row in some.to_pylist()]
    expected = model.answers(some, 0.1).to_pylist()

    def ours_right(number, body):
        return near(json.loads(body)["decisions"][0], expected[number])

    def bare_right(number, body):
        return near(json.loads(body), expected[number])

    classes = json.dumps(model.classes.tolist())
    bare = str(script), str(graph), classes
    with (
        Server(*serve(folder / name)) as ours,
        Server(*bare, "uvicorn") as on_uvicorn,
        Server(*bare, "granian") as on_granian,
    ):
        servers = {
            "demur serve": (ours, ours_right),
            "bare FastAPI": (on_uvicorn, bare_right),
            "bare, on granian": (on_granian, bare_right),
        }
        for server, _ in servers.values():  # the first requests load what is loaded on demand
            server.wait()
            Load(server.port, requests, lambda *_: True, 1).run(1)
        for connections in CONNECTIONS:
            results = {server: [] for server in servers}
            for _ in range(rounds):  # in turn, since other programs come and go
                for found, (server, right) in zip(results.values(), servers.values(), strict=True):
                    before, load_ = server.cpu(), Load(server.port, requests, right, connections)
                    figures = load_.run(seconds / rounds)
                    found.append((*figures, 1e3 * (server.cpu() - before) / len(load_.waits)))
            rates = {server: np.mean([one[0] for one in found]) for server, found in results.items()}
            for server, found in results.items():
                _, p50, p99, errors, cpu = np.transpose(found)
                figures = (f"{rates[server]:.0f}", f"{rates[server] / rates['bare FastAPI']:.2f}")
                figures = (*figures, f"{np.median(p50):.1f}", f"{np.median(p99):.1f}", f"{np.median(cpu):.2f}")
                table.add_row(name, server, str(connections), *figures, f"{int(errors.sum())}")
            if sum(one[3] for one in results["demur serve"]):
                raise SystemExit("the service gave wrong answers, or none")


def soak(name, folder, n_requests):
    """Send many requests to the service, and say what its memory does."""
    model, some = fitted(name, folder), rows().drop(["y"]).slice(0, N_BODIES)
    plain = some.to_pylist()
    documents = [{"row": row} for row in plain] + [{"rows": plain[:k], "cost": 0.1} for k in (2, 9, 50)]
    expected = [[one] for one in model.answers(some).to_pylist()]
    expected += [model.answers(some.slice(0, k), 0.1).to_pylist() for k in (2, 9, 50)]
    with Server(*serve(folder / name)) as server:
        memory = []
        errors = done = 0
        while done < n_requests:
            step = min(n_requests // 10, n_requests - done)
            load_ = Load(
                server.port,
                list(map(request, documents)),
                lambda k, body: all(map(near, json.loads(body)["decisions"], expected[k])),
                16,
            )
            errors += load_.run(most=step)[3]
            done += len(load_.waits)
            memory.append(server.megabytes())
            print(f"{done:,} requests, {errors} errors, {memory[-1]:.0f} MB", flush=True)
    print(f"{name}: memory after a tenth {memory[0]:.0f} MB, at the end {memory[-1]:.0f} MB; {errors} errors")


def presets(data, folder, budget=20):
    """Print the processor time of one row, decided by the models of two presets."""
    from threadpoolctl import threadpool_limits

    from demur.deploy.answers import Answerer
    from demur.tabular import fit_file, read_table

    for name, preset in itertools.product(("mixed/car", "mixed/hypothyroid", "mixed/eucalyptus", "satimage_train"),
                                          ("fast", "default")):  # fmt: skip
        path = data / f"{name}.csv.gz"
        save(fit_file(path, "class", preset=preset, time_budget=budget).model, folder / f"{preset}-{path.stem}")
        model = load(folder / f"{preset}-{path.stem}")
        asked = [{"row": row} for row in read_table(path).slice(0, 100).select(model.schema.names).to_pylist()]

        async def decide(answerer, questions):
            started = time.process_time()
            for question in questions:
                await answerer.answer(question)
            return 1e3 * (time.process_time() - started) / len(questions)

        with threadpool_limits(1):  # as in a worker of the service
            answerer = Answerer(model)
            asyncio.run(decide(answerer, asked[:10]))
            each = asyncio.run(decide(answerer, asked))
        blend = ", ".join(one.name for one in model.classifier.estimator_.tried_ if one.weight)
        print(f"{name:20} {preset:8} {each:5.2f} ms  {blend}", flush=True)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seconds", type=float, default=10, help="for each server and number of connections")
    parser.add_argument("--rounds", type=int, default=4, help="turns that these seconds are divided into")
    parser.add_argument("--soak", type=int, help="only send so many requests, and watch the memory")
    parser.add_argument("--presets", action="store_true", help="only measure one row of two presets")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DEMUR_DATA", "data")))
    options, _ = parser.parse_known_args(arguments)
    table = Table(title=f"Single-row requests, {os.cpu_count()} cores", title_justify="left")
    for heading in ("model", "server", "connections", "requests/s", "ratio", "p50 ms", "p99 ms", "CPU ms", "errors"):
        table.add_column(heading, justify="left" if heading in ("model", "server") else "right")
    with tempfile.TemporaryDirectory() as folder:
        if options.presets:
            presets(options.data, Path(folder))
        for name in () if options.presets else options.models:
            if options.soak:
                soak(name, Path(folder), options.soak)
            else:
                measure(name, Path(folder), options.seconds, options.rounds, table)
    if not (options.soak or options.presets):
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
