"""What is released: the wheel holds everything, and a base install says which extra a missing feature needs."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_wheel_holds_the_whole_package(tmp_path):
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        metadata = next(name for name in names if name.endswith("METADATA"))
        text = wheel.read(metadata).decode()
    source = ROOT / "src"
    files = {path for path in (source / "demur").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    missing = {path.relative_to(source).as_posix() for path in files} - names
    assert not missing
    assert "Requires-Python: >=3.11" in text
    for extra in ("dask", "onnx", "plot", "report", "serve"):
        assert f"Provides-Extra: {extra}" in text


PREPARE = """
import pyarrow as pa
from demur.tabular import fit_table
table = pa.table({"x": [0.0, 0.1, 0.9, 1.0] * 10, "y": ["a", "a", "b", "b"] * 10})
model = fit_table(table, "y", model="lr")
"""
FEATURES = {
    "report": ("jinja2", "from demur.tabular import evaluate_table; from demur.tabular import report_html\n"
               "report_html(evaluate_table(model, table), 'title')"),
    "onnx": ("onnx", "from demur.deploy.onnx import onnx_model\nonnx_model(model)"),
    "serve": ("fastapi", "from demur.deploy import create_app\ncreate_app(model)"),
    "dask": ("dask", "from demur.workers import optional_dask\noptional_dask()"),
    "plot": ("matplotlib", "from demur.metrics import RiskCoverageDisplay\n"
             "RiskCoverageDisplay.from_predictions([0, 1], [[0.9, 0.1], [0.2, 0.8]])"),
}  # fmt: skip


def test_a_missing_extra_is_named_only_where_it_is_needed():
    assert set(FEATURES) <= set(PROJECT["optional-dependencies"])
    missing = "".join(f"sys.modules[{package!r}] = None\n" for package, _ in FEATURES.values())
    tries = "".join(
        f"try:\n    exec({use!r})\nexcept ImportError as error:\n    print({extra!r}, error)\n"
        for extra, (_, use) in FEATURES.items()
    )
    script = f"import sys\n{missing}{PREPARE}\nprint('base works')\n{tries}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, *messages = done.stdout.splitlines()
    assert first == "base works"
    assert [line.split()[0] for line in messages] == list(FEATURES)
    for extra, line in zip(FEATURES, messages, strict=True):
        assert f"demur[{extra}]" in line


@pytest.mark.parametrize("result", ["exit 1", "echo ServiceError; exit 1", "exit 0"])
def test_make_audit_succeeds_only_if_the_audit_does(tmp_path, result):
    """Without a connection, pip-audit reports an error; it must not pass for a clean audit."""
    (tmp_path / "bin").mkdir()
    for name, script in {"python": "exit 0", "pip-audit": result}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / ".installed").touch()
    done = subprocess.run(["make", "audit", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode == 0) == (result == "exit 0"), done
