"""Runs that are killed, on a cluster, and on a machine with few packages: each needs processes of its own."""

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from demur.paper import pages, trial_jobs
from demur.paper.experiments import chosen_experiments, parse_settings
from demur.paper.problems import DataPlace
from demur.paper.records import Store
from demur.paper.trial_jobs import JobsFailedError, Watch, make_plan, matching, run_here, run_on_cluster
from demur.paper.trial_means import collect, find_published
from demur.workers import connect_dask

pytestmark = pytest.mark.slow
posix = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SETTINGS = ["epochs=3", "trials=1"]
ARGUMENTS = [
    *("reproduce", "benchmark", "--quick", "--data", "/nonexistent", "--problems", "vehicle,yeast", "--device", "cpu"),
    *("--methods", "CE,OVA+log,OVA+hin", *(part for text in SETTINGS for part in ("--set", text)), "--records-only"),
]


def command(out):
    return [sys.executable, "-m", "demur", *ARGUMENTS, "--out", str(out)]


@posix
def test_kill_minus_nine(tmp_path, monkeypatch):
    """Killed with SIGKILL in the middle, the same command finishes, with the same tables."""
    monkeypatch.setattr(pages, "draw_figures", lambda *results: {})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(whole), env=ENVIRONMENT, check=True, capture_output=True)
    victim = subprocess.Popen(command(broken), env=ENVIRONMENT, stderr=subprocess.PIPE)
    while not victim.stderr.readline().startswith(b"[1/6]"):  # then the first job is finished
        assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    kept = Store(broken, "benchmark").path.read_bytes()
    assert kept
    subprocess.run(command(broken), env=ENVIRONMENT, check=True, capture_output=True)
    assert len(list(Store(broken, "benchmark").records())) == 6
    assert Store(broken, "benchmark").path.read_bytes().startswith(kept)  # nothing finished was computed twice
    experiments = chosen_experiments("benchmark", short=True, settings=parse_settings(SETTINGS))
    for out in (whole, broken):
        pages.write_outputs(out, experiments, find_published(), DataPlace("/nonexistent", stand_ins=True))
    for name in ("benchmark.csv", "tables.md"):
        assert (broken / name).read_text() == (whole / name).read_text()


def test_records_need_no_package_that_draws_downloads_or_prints(tmp_path):
    """Numpy, scipy, scikit-learn and torch are enough to compute records, so a bare GPU machine can."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'pooch', 'matplotlib', 'dask', 'distributed', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "from demur.paper import BENCHMARK, DataPlace, compute_records, quick\n"
        "small = quick(BENCHMARK).only(problems=('vehicle',), methods=('CE',)).with_settings({'epochs': '1'})\n"
        "compute_records([small], sys.argv[1], DataPlace('/nonexistent', stand_ins=True), device='cpu')\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert len(list(Store(tmp_path, "benchmark").records())) == 1


class Killer:
    """Kills a worker process that is at work, when the first job is finished."""

    def __init__(self, client, cluster):
        self.client, self.cluster, self.killed, self.jobs = client, cluster, None, []

    def finished(self, job, record, place):
        self.jobs.append(job)
        if self.killed is not None:
            return
        busy = [address for address, keys in self.client.processing().items() if keys]
        workers = {nanny.worker_address: nanny for nanny in self.cluster.workers.values()}
        self.killed = workers[busy[0]].pid
        os.kill(self.killed, signal.SIGKILL)


@posix
@pytest.mark.filterwarnings("ignore")  # a cluster that loses a worker warns about it, as it should
def test_a_killed_worker_loses_nothing(benchmark, place, tmp_path):
    distributed = pytest.importorskip("distributed", reason='Dask is an optional extra: pip install "demur[dask]"')
    cluster, here = tmp_path / "cluster", tmp_path / "here"
    plan = make_plan(benchmark, Store(cluster, "benchmark"), place)
    plan.store.check_writable()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers,
        connect_dask(workers.scheduler_address) as client,
    ):
        killer = Killer(client, workers)
        run_on_cluster(plan, client, "cpu", Watch(finished=killer.finished))
    assert killer.killed is not None
    assert sorted(killer.jobs, key=repr) == sorted(plan.jobs, key=repr)
    alone = make_plan(benchmark, Store(here, "benchmark"), place)
    alone.store.check_writable()
    run_here(alone, torch.device("cpu"))
    together, single = (collect(benchmark, matching(benchmark, Store(out, "benchmark"))) for out in (cluster, here))
    assert together.scores == single.scores
    assert not together.missing


def test_processes_compute_the_same_and_end_with_the_run(benchmark, place, tmp_path, monkeypatch):
    monkeypatch.setattr(trial_jobs, "WORK_FOR_PROCESSES", 0)
    alone, together, interrupted = (
        make_plan(benchmark, Store(tmp_path / name, "benchmark"), place)
        for name in ("alone", "together", "interrupted")
    )
    for plan in (alone, together, interrupted):
        plan.store.check_writable()
    run_here(alone, torch.device("cpu"))
    wrong = replace(together.jobs[0], protocol=replace(benchmark.protocol, learning_rate=1e30))
    said = []
    plan = together._replace(jobs=[*together.jobs, wrong])
    with pytest.raises(JobsFailedError, match="1 of the jobs failed"):
        run_here(plan, torch.device("cpu"), Watch(warn=said.append), n_processes=2)
    assert "AllDivergedError" in said[0]
    expected, found = (collect(benchmark, matching(benchmark, plan.store)) for plan in (alone, together))
    assert found.scores == expected.scores
    assert not found.missing

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_here(interrupted, torch.device("cpu"), Watch(finished=interrupt), n_processes=2)
    assert len(list(interrupted.store.records())) == 1
    assert not multiprocessing.active_children()
