"""On a cluster: the same records, and a worker's death loses nothing."""

import os
import signal

import pytest
import torch

from demur.paper.numbers import collect
from demur.paper.plan import make_plan, matching
from demur.paper.progress import Silent
from demur.paper.runner import run_here
from demur.paper.store import Store

pytest.importorskip("distributed", reason='Dask is an optional extra: pip install "demur[dask]"')

from demur.paper.distributed import connect, run_on_cluster


class Killer(Silent):
    """Kills a worker process that is at work, when the first unit is finished."""

    def __init__(self, client):
        self.client, self.killed, self.units = client, None, []

    def finished(self, unit, record):
        self.units.append(unit.name)
        if self.killed is not None:
            return
        busy = [address for address, keys in self.client.processing().items() if keys]
        workers = {nanny.worker_address: nanny for nanny in self.client.cluster.workers.values()}
        self.killed = workers[busy[0]].pid
        os.kill(self.killed, signal.SIGKILL)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
@pytest.mark.filterwarnings("ignore")  # a cluster that loses a worker warns about it, as it should
def test_a_killed_worker_loses_nothing(benchmark, place, tmp_path):
    cluster, here = tmp_path / "cluster", tmp_path / "here"
    plan = make_plan(benchmark, Store(cluster, "benchmark"), place)
    plan.store.check_writable()
    with connect("local:2") as client:
        killer = Killer(client)
        run_on_cluster(plan, client, "cpu", killer)
    assert killer.killed is not None
    assert sorted(killer.units) == sorted(unit.name for unit in plan.units)
    alone = make_plan(benchmark, Store(here, "benchmark"), place)
    alone.store.check_writable()
    run_here(alone, torch.device("cpu"))
    together, single = (collect(benchmark, matching(benchmark, Store(out, "benchmark"))) for out in (cluster, here))
    assert together.scores == single.scores
    assert not together.missing


def test_an_address_that_does_not_answer(monkeypatch):
    import distributed

    def refuse(address, timeout):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(ValueError, match="the scheduler tcp://nowhere:1 does not answer"), connect("tcp://nowhere:1"):
        pass
