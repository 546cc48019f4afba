"""How many single-row requests the service answers in a second, and how long each takes.

The service runs in a second process, and ``wrk`` in a third; both share the cores of this machine. Run it with
``python -m benchmarks service``.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from demur.deploy import save
from demur.tabular import fit_table

MODELS = ("ce", "rf", "auto")
CONNECTIONS = (1, 8, 32)
SERVE = "import sys; from pathlib import Path; from demur.cli.serve import serve; serve(Path(sys.argv[1]), port=0)"
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("{body}")
wrk.body = file:read("*a")
file:close()
done = function(summary, latency, requests)
  local failed = summary.errors
  io.write(string.format("\\n@ %d %d %f %f %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), failed.connect + failed.read + failed.write + failed.status + failed.timeout))
end
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


def load(address, script, connections, seconds):
    """Return requests a second, median and 99th percentile in milliseconds, and errors."""
    call = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script, f"{address}/decide"]
    out = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    requests, microseconds, p50, p99, errors = map(float, re.search(r"^@ (.*)", out, re.MULTILINE)[1].split())
    return requests / microseconds * 1e6, p50 / 1e3, p99 / 1e3, int(errors)


def measure(name, folder, seconds, table):
    data = rows()
    save(fit_table(data, "y", model=name, time_budget=60), folder / name)
    body = folder / f"{name}.json"
    body.write_text(json.dumps({"row": data.drop(["y"]).slice(0, 1).to_pylist()[0], "cost": 0.1}))
    script = folder / f"{name}.lua"
    script.write_text(SCRIPT.format(body=body))
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(folder / name)], stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        load(address, script, 1, 1)  # the first requests load what is loaded on demand
        for connections in CONNECTIONS:
            rate, p50, p99, errors = load(address, script, connections, seconds)
            table.add_row(name, str(connections), f"{rate:.0f}", f"{p50:.1f}", f"{p99:.1f}", str(errors))
            if errors:
                raise SystemExit(f"{errors} requests failed")
    finally:
        process.terminate()
        process.wait()


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seconds", type=int, default=10, help="for each number of connections")
    options, _ = parser.parse_known_args(arguments)
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, which most systems have as a package of that name")
    table = Table(title="Single-row requests", title_justify="left")
    for heading in ("model", "connections", "requests/s", "p50 ms", "p99 ms", "errors"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            measure(name, Path(folder), options.seconds, table)
    Console().print(table)


if __name__ == "__main__":
    main()
