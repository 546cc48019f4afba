"""Killed with SIGKILL in the middle, the same command finishes, with the same tables."""

import os
import signal
import subprocess
import sys

import pytest

from demur.paper import render
from demur.paper.problems import DataPlace
from demur.paper.published import find_published
from demur.paper.run import chosen_experiments, main, parse_settings
from demur.paper.store import Store

SETTINGS = ["epochs=3", "trials=1"]
ARGUMENTS = [
    *("benchmark", "--quick", "--data", "/nonexistent", "--problems", "vehicle,yeast", "--device", "cpu"),
    *("--methods", "CE,OVA+log,OVA+hin", *(part for text in SETTINGS for part in ("--set", text))),
]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_kill_minus_nine(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(render, "_figures", lambda material: {})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*ARGUMENTS, "--out", str(whole)]) == 0
    victim = subprocess.Popen(
        [sys.executable, "-m", "demur.paper.run", *ARGUMENTS, "--out", str(broken)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    victim.stderr.readline()  # the first unit is finished
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    kept = {path: path.stat().st_mtime_ns for path in broken.glob("records/benchmark/*.json")}
    assert kept
    assert main([*ARGUMENTS, "--out", str(broken)]) == 0
    assert len(list(Store(broken, "benchmark").records())) == 6
    for path, time in kept.items():
        assert path.stat().st_mtime_ns == time  # nothing finished was computed twice
    experiments = chosen_experiments("benchmark", short=True, settings=parse_settings(SETTINGS))
    for out in (whole, broken):
        render.write_outputs(out, experiments, find_published(), DataPlace("/nonexistent", stand_ins=True))
    for name in ("benchmark.csv", "tables.md"):
        assert (broken / name).read_text() == (whole / name).read_text()
