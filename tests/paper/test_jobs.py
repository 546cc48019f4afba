"""Small complete runs: they can be continued, give the same result in any order, and report what failed."""

import errno
import json
import shutil
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

from demur.errors import InputError, MissingExtraError
from demur.paper import pages, records, trial_jobs
from demur.paper.experiments import BENCHMARK, quick, with_losses
from demur.paper.pages import write_outputs
from demur.paper.problems import DataPlace
from demur.paper.records import Record, Store, StoreError
from demur.paper.trial_jobs import JobsFailedError, Watch, make_plan, matching, run_here
from demur.paper.trial_means import collect, find_published
from demur.paper.trials import compute as compute_job
from demur.workers import connect_dask

CPU = torch.device("cpu")


class Watcher:
    """Remembers what it is told; may stop the run after some jobs, as a kill would."""

    def __init__(self, stop_after=None):
        self.jobs, self.messages, self.stop_after = [], [], stop_after
        self.watch = Watch(finished=self.finished, warn=self.messages.append)

    def finished(self, job, record, place):
        self.jobs.append((job.problem, job.method.name, job.trials))
        if len(self.jobs) == self.stop_after:
            raise KeyboardInterrupt


def compute(experiment, out, place, watcher=None):
    watcher = watcher or Watcher()
    plan = make_plan(experiment, Store(out, experiment.name), place, warn=watcher.messages.append)
    plan.store.check_writable()
    run_here(plan, CPU, watcher.watch)
    return watcher


@pytest.fixture(scope="session")
def done(tmp_path_factory, benchmark, synthetic, place):
    """A finished run with its tables."""
    out = tmp_path_factory.mktemp("done")
    for experiment in (benchmark, synthetic):
        watcher = compute(experiment, out, place)
        assert not watcher.messages
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "draw_figures", lambda *results: {})
        write_outputs(out, [benchmark, synthetic], find_published(), place)
    return out


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr(pages, "draw_figures", lambda *results: {})


def tables(out):
    return {name: (out / name).read_text() for name in ("benchmark.csv", "synthetic.csv", "tables.md")}


def test_a_finished_run_computes_nothing_again(done, benchmark, place):
    assert make_plan(benchmark, Store(done, "benchmark"), place).jobs == []
    assert compute(benchmark, done, place).jobs == []


@pytest.mark.usefixtures("without_figures")
def test_a_run_stopped_at_any_job_continues_to_the_same_tables(done, benchmark, synthetic, place, tmp_path):
    everything = []
    for stop_after in (1, 2, 3, None):
        watcher = Watcher(stop_after)
        with suppress(KeyboardInterrupt):
            compute(benchmark, tmp_path, place, watcher)
        everything += watcher.jobs
    assert len(everything) == len(set(everything)) == 8
    compute(synthetic, tmp_path, place)
    write_outputs(tmp_path, [benchmark, synthetic], find_published(), place)
    assert tables(tmp_path) == tables(done)


def test_trials_may_be_added_later(done, benchmark, place, tmp_path):
    one = replace(benchmark, protocol=replace(benchmark.protocol, trials=1))
    compute(one, tmp_path, place)
    watcher = compute(benchmark, tmp_path, place)
    assert {trials for _, _, trials in watcher.jobs} == {(1,)}
    results = [collect(benchmark, matching(benchmark, Store(out, "benchmark"))) for out in (done, tmp_path)]
    assert results[0].scores == results[1].scores
    assert not results[1].missing
    assert results[0].records != results[1].records


def test_a_damaged_record_is_reported_and_computed_again(benchmark, place, tmp_path):
    small = benchmark.only(problems=("vehicle",), methods=("CE", "BEP", "OVA+hin"))
    compute(small, tmp_path, place)
    store = Store(tmp_path, "benchmark")
    before = [record.scores for record in store.records()]
    first, second, third = store.path.read_text().splitlines()
    store.path.write_text("\n".join([first.replace('"rejected": ', '"rejected": 1'), second, third[:-200]]))
    watcher = compute(small, tmp_path, place)
    assert [message.split(" is damaged")[0] for message in watcher.messages] == [
        f"the record {store.path}, line {number}" for number in (1, 3)
    ]
    assert len(watcher.jobs) == 2
    assert [record.scores for record in Store(tmp_path, "benchmark").records()] == before


def test_records_survive_json_and_other_values_are_refused(done):
    record = next(Store(done, "synthetic").records())
    body = json.loads(json.dumps(record.to_json()))
    assert Record.from_json(body) == record
    assert record.environment["torch"] == torch.__version__
    assert record.scores[0].false_accepts is not None
    assert record.seconds_training > 0
    for damaged in ({}, {**body, "note": "other"}, {"sha256": body["sha256"]}):
        with pytest.raises(ValueError, match=r"checksum|complete record"):
            Record.from_json(damaged)


def test_a_full_disk_is_one_clear_error_and_keeps_what_is_finished(benchmark, place, tmp_path, monkeypatch):
    small = benchmark.only(problems=("vehicle",), methods=("CE", "OVA+hin", "BEP"))
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Finished records are kept"):
        compute(small, tmp_path, place)
    monkeypatch.undo()
    assert len(compute(small, tmp_path, place).jobs) <= 2
    assert len(list(Store(tmp_path, "benchmark").records())) == 3


def test_an_unusable_folder_is_refused_before_anything_is_computed(benchmark, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*Choose another folder with --out"):
        Store(tmp_path / "file", "benchmark").check_writable()


@pytest.mark.usefixtures("without_figures")
def test_a_failing_job_is_reported_and_the_others_go_on(benchmark, place, tmp_path, monkeypatch):
    original = trial_jobs.compute

    def sometimes(job, *where):
        if job.method.name == "CE":
            raise MemoryError("too large")
        return original(job, *where)

    monkeypatch.setattr(trial_jobs, "compute", sometimes)
    watcher = Watcher()
    with pytest.raises(JobsFailedError, match=r"2 of the jobs failed \(CE on vehicle, CE on yeast\)"):
        compute(benchmark, tmp_path, place, watcher)
    assert watcher.messages[0] == "CE on vehicle failed: MemoryError: too large"
    assert len(watcher.jobs) == 6
    outcome = write_outputs(tmp_path, [benchmark], find_published(), place)
    assert outcome.benchmark.missing == ["CE on vehicle: 2 of 2 trials", "CE on yeast: 2 of 2 trials"]
    assert "Not complete" in (tmp_path / "README.md").read_text()


def test_networks_that_all_diverge_are_an_error_not_a_number(benchmark, place, tmp_path):
    hot = benchmark.only(problems=("vehicle",), methods=("CE",)).with_settings({"learning_rate": "1e38"})
    watcher = Watcher()
    with pytest.raises(JobsFailedError):
        compute(hot, tmp_path, place, watcher)
    assert "diverged in trial 0 at cost 0.1; lower learning_rate (it is 1e+38)" in watcher.messages[0]


def test_every_output_of_a_stand_in_says_so(done, benchmark):
    for name in ("README.md", "tables.md"):
        text = (done / name).read_text()
        assert "stand-in" in text, name
        assert "quick run" in text.lower(), name
    rows = (done / "benchmark.csv").read_text().splitlines()
    assert all(row.endswith(",,") for row in rows[1:])  # nothing published beside a stand-in


@pytest.mark.slow
def test_figures_are_the_same_each_time_and_say_what_the_data_are(done, benchmark, synthetic, place, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(done, tmp_path / name)
        write_outputs(tmp_path / name, [benchmark, synthetic], find_published(), place)
    drawn = sorted(path.name for path in tmp_path.glob("one/figures/*"))
    assert drawn == [f"figure-{number}.{kind}" for number in (1, 2, 4) for kind in ("png", "svg")]
    for name in drawn:
        one, two = (tmp_path / folder / "figures" / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    text = (tmp_path / "one" / "figures" / "figure-4.svg").read_text()
    assert "stand-in" in text
    assert "quick run" in text


@pytest.mark.usefixtures("without_figures")
def test_tables_can_be_drawn_without_data_from_the_records_alone(done, benchmark, synthetic):
    before = tables(done)
    write_outputs(done, [benchmark, synthetic], find_published(), None)
    assert tables(done) == before


def test_records_of_different_data_are_not_mixed(done, benchmark, place, tmp_path):
    records = list(matching(benchmark, Store(done, "benchmark")))
    other = replace(records[0], spec={**records[0].spec, "data": "0" * 64})
    with pytest.raises(InputError, match="made with different data"):
        collect(benchmark, [*records, other])


def test_an_empty_store_has_nothing_to_show(benchmark, tmp_path):
    with pytest.raises(InputError, match="no record"):
        write_outputs(tmp_path, [benchmark], find_published(), None)


def test_results_do_not_depend_on_the_number_of_stacks_at_a_time(benchmark, place):
    plan = make_plan(benchmark.only(problems=("yeast",), methods=("MPC+log",)), Store("/nonexistent", "x"), place)
    outcomes = [compute_job(plan.jobs[0], place, CPU, n_workers).scores for n_workers in (1, 2)]
    assert outcomes[0] == outcomes[1]


def test_a_loss_from_a_file_is_trained_and_stands_among_the_further_losses(benchmark, place, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from demur.losses import OneVsAllHinge\n"
        "@dataclass(frozen=True)\n"
        "class Renamed(OneVsAllHinge):\n"
        "    name = property(lambda self: 'renamed')\n"
    )
    name = f"{tmp_path / 'mine.py'}:Renamed"
    (experiment,) = with_losses([benchmark.only(problems=("vehicle",), methods=("OVA+hin",))], [name])
    compute(experiment, tmp_path, place)
    hinge, renamed = Store(tmp_path, "benchmark").records()
    assert renamed.spec["method"]["loss"] == name
    assert renamed.scores == hinge.scores  # with its thresholds, which only a loss given by name brings


def test_synthetic_risks_are_close_to_those_of_the_rule_that_knows_the_distribution(synthetic, place):
    """The counts of false accepts and rejects, and the test risk, fit the exact posterior."""
    from demur.paper.problems import gaussians_of, prepare

    problem = prepare("20", synthetic.protocol, place, CPU)
    gaussians = gaussians_of(synthetic.protocol)
    for cost in (0.1, 0.3):
        reject = problem.best_confidence.numpy() <= 1 - cost
        exact = gaussians.bayes_summary(cost).rejection_rate.value
        assert abs(reject.mean() - exact) < 4 * np.sqrt(exact / len(reject))


@pytest.mark.parametrize(("scaling", "low", "high"), [("range", -1, 1), ("standard", None, None), ("none", None, None)])
def test_features_are_scaled_with_the_training_rows_statistics(benchmark, place, scaling, low, high):
    from demur.paper.problems import prepare

    X = prepare("vehicle", benchmark.with_settings({"scaling": scaling}).protocol, place, CPU).X.double()
    if scaling == "range":
        torch.testing.assert_close(X.amin(0), torch.full((18,), low).double(), atol=1e-5, rtol=0)
        torch.testing.assert_close(X.amax(0), torch.full((18,), high).double(), atol=1e-5, rtol=0)
    if scaling == "standard":
        torch.testing.assert_close(X.mean(0), torch.zeros(18).double(), atol=1e-5, rtol=0)
        torch.testing.assert_close(X.std(0, correction=0), torch.ones(18).double(), atol=1e-5, rtol=0)
    if scaling == "none":
        assert not torch.allclose(X.mean(0), torch.zeros(18).double(), atol=1e-5)


def test_an_unknown_scaling_is_refused(benchmark, place):
    from demur.paper.problems import prepare

    with pytest.raises(ValueError, match="scaling must be 'standard', 'range', 'unit', 'source' or 'none', got 'log'"):
        prepare("vehicle", benchmark.with_settings({"scaling": "log"}).protocol, place, CPU)


def test_figures_on_some_of_the_test_rows_say_on_how_many(monkeypatch):
    from demur.paper import problems

    monkeypatch.setattr(problems, "fingerprint", lambda name, folder: ("0", "whole"))
    short, whole = quick(BENCHMARK).protocol, BENCHMARK.protocol
    assert problems.identify("covtype", short, DataPlace()).note == "measured on 10,000 of 565,892 test rows"
    assert problems.identify("letter", short, DataPlace()).note == "whole"
    assert problems.identify("covtype", whole, DataPlace()).note == "whole"


def test_an_address_that_does_not_answer(monkeypatch):
    distributed = pytest.importorskip("distributed", reason='Dask is an optional extra: pip install "demur[dask]"')

    def refuse(address, timeout):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", refuse)
    with (
        pytest.raises(ValueError, match="the scheduler tcp://nowhere:1 does not answer"),
        connect_dask("tcp://nowhere:1"),
    ):
        pass


def test_missing_packages_are_named_with_their_extra(benchmark, place, tmp_path, monkeypatch):
    for name in ("matplotlib", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r'figures need matplotlib: pip install "demur\[paper\]"'):
        write_outputs(tmp_path, [benchmark], find_published(), place)
    with (
        pytest.raises(MissingExtraError, match=r'needs Dask: pip install "demur\[dask\]"'),
        connect_dask("tcp://host:8786"),
    ):
        pass
