"""Small whole runs: resumable, the same however they are cut, honest about what went wrong."""

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

from demur.paper import render, runner, store
from demur.paper import run as module
from demur.paper.numbers import MixedDataError, collect
from demur.paper.plan import make_plan, matching
from demur.paper.problems import DataPlace
from demur.paper.progress import Lines, RunFailedError, Silent
from demur.paper.published import find_published
from demur.paper.records import DamagedRecordError, Record
from demur.paper.render import NothingToShowError, write_outputs
from demur.paper.runner import run_here
from demur.paper.store import Store, StoreError, UnusableFolderError

CPU = torch.device("cpu")


class Watcher(Silent):
    """Remembers what it hears; may stop the run after some units, as a kill would."""

    def __init__(self, stop_after=None):
        self.units, self.messages, self.work, self.total, self.stop_after = [], [], 0.0, 0.0, stop_after

    def start(self, n_units, work):
        self.total = work

    def advance(self, work):
        self.work += work

    def finished(self, unit, record):
        self.units.append(unit.name)
        if len(self.units) == self.stop_after:
            raise KeyboardInterrupt

    def warn(self, message):
        self.messages.append(message)


def compute(experiment, out, place, watcher=None):
    watcher = watcher or Watcher()
    plan = make_plan(experiment, Store(out, experiment.name), place, progress=watcher)
    plan.store.check_writable()
    run_here(plan, CPU, watcher)
    return watcher


@pytest.fixture(scope="session")
def done(tmp_path_factory, benchmark, synthetic, place):
    """A finished run with its tables."""
    out = tmp_path_factory.mktemp("done")
    for experiment in (benchmark, synthetic):
        watcher = compute(experiment, out, place)
        assert watcher.work == pytest.approx(watcher.total)
        assert not watcher.messages
    write_outputs(out, [benchmark, synthetic], find_published(), place)
    return out


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr(render, "_figures", lambda material: {})


def tables(out):
    return {name: (out / name).read_text() for name in ("benchmark.csv", "synthetic.csv", "tables.md")}


def test_a_finished_run_computes_nothing_again(done, benchmark, place):
    assert make_plan(benchmark, Store(done, "benchmark"), place).units == []
    assert compute(benchmark, done, place).units == []


def test_a_run_stopped_at_any_unit_continues_to_the_same_tables(done, benchmark, synthetic, place, tmp_path):
    everything = []
    for stop_after in (1, 2, 3, None):
        watcher = Watcher(stop_after)
        with suppress(KeyboardInterrupt):
            compute(benchmark, tmp_path, place, watcher)
        everything += watcher.units
    assert len(everything) == len(set(everything)) == 8
    compute(synthetic, tmp_path, place)
    write_outputs(tmp_path, [benchmark, synthetic], find_published(), place)
    assert tables(tmp_path) == tables(done)
    for path in done.glob("figures/*"):
        assert (tmp_path / "figures" / path.name).read_bytes() == path.read_bytes()


def test_trials_may_be_added_later(done, benchmark, place, tmp_path):
    one = replace(benchmark, protocol=replace(benchmark.protocol, trials=1))
    compute(one, tmp_path, place)
    watcher = compute(benchmark, tmp_path, place)
    assert all(".trials-1." in name for name in watcher.units)
    results = [collect(benchmark, matching(benchmark, Store(out, "benchmark"))) for out in (done, tmp_path)]
    assert results[0].scores == results[1].scores
    assert not results[1].missing
    assert results[0].records != results[1].records


def test_a_damaged_record_is_reported_and_computed_again(benchmark, place, tmp_path):
    small = benchmark.only(problems=("vehicle",), methods=("CE", "BEP"))
    compute(small, tmp_path, place)
    first, second = sorted(tmp_path.glob("records/benchmark/*.json"))
    before = {path.name: json.loads(path.read_text())["scores"] for path in (first, second)}
    first.write_text(first.read_text()[:-200])
    second.write_text(second.read_text().replace('"rejected": ', '"rejected": 1'))
    watcher = compute(small, tmp_path, place)
    assert len(watcher.messages) == 2
    assert all("is damaged" in message for message in watcher.messages)
    assert len(watcher.units) == 2
    assert {path.name: json.loads(path.read_text())["scores"] for path in (first, second)} == before


def test_records_survive_the_journey_through_json_and_nothing_else_passes(done):
    path = next(iter(sorted(done.glob("records/synthetic/*.json"))))
    record = Record.from_json(path.read_text())
    assert Record.from_json(record.to_json()) == record
    assert record.environment["torch"] == torch.__version__
    assert record.scores[0].false_accepts is not None
    assert record.seconds_training > 0
    for text in ("", "[]", "{}", "null", path.read_text()[:100]):
        with pytest.raises(DamagedRecordError):
            Record.from_json(text)
    without = replace(record, scores=record.scores[1:])
    with pytest.raises(DamagedRecordError, match="missing"):
        Record.from_json(without.to_json())


def test_half_written_files_are_never_seen_and_go_away(done, benchmark, place, tmp_path):
    small = benchmark.only(problems=("vehicle",), methods=("CE",))
    name = make_plan(small, Store(tmp_path, "benchmark"), place).units[0].name
    folder = tmp_path / "records" / "benchmark"
    folder.mkdir(parents=True)
    (folder / f".{name}.abc.tmp").write_text("half a rec")
    assert compute(small, tmp_path, place).units == [name]
    assert [path.name for path in folder.iterdir()] == [f"{name}.json"]


def test_a_full_disk_is_one_clear_error_and_keeps_what_is_finished(benchmark, place, tmp_path, monkeypatch):
    small = benchmark.only(problems=("vehicle",), methods=("CE", "OVA+hin", "BEP"))
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 2:  # the first record takes two: the file and the folder
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. What is finished is kept"):
        compute(small, tmp_path, place)
    monkeypatch.undo()
    assert len(list(tmp_path.glob("records/benchmark/*.json"))) == 1
    assert len(compute(small, tmp_path, place).units) == 2


def test_an_unusable_folder_is_refused_before_anything_is_computed(benchmark, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableFolderError, match=r"cannot write to .*Choose another folder with --out"):
        Store(tmp_path / "file", "benchmark").check_writable()


@pytest.mark.usefixtures("without_figures")
def test_a_failing_unit_is_reported_and_the_others_go_on(benchmark, place, tmp_path, monkeypatch):
    original = runner.compute

    def sometimes(unit, workplace, progress):
        if unit.method.name == "CE":
            raise MemoryError("too large")
        return original(unit, workplace, progress)

    monkeypatch.setattr(runner, "compute", sometimes)
    watcher = Watcher()
    with pytest.raises(RunFailedError, match=r"2 of the units failed \(CE on vehicle, CE on yeast\)"):
        compute(benchmark, tmp_path, place, watcher)
    assert watcher.messages[0] == "CE on vehicle failed: MemoryError: too large"
    assert len(watcher.units) == 6
    material = write_outputs(tmp_path, [benchmark], find_published(), place)
    assert material.benchmark.missing == ["CE on vehicle: 2 of 2 trials", "CE on yeast: 2 of 2 trials"]
    assert "Not complete" in (tmp_path / "README.md").read_text()


def test_networks_that_all_diverge_are_an_error_not_a_number(benchmark, place, tmp_path):
    hot = benchmark.only(problems=("vehicle",), methods=("CE",)).with_settings({"learning_rate": "1e38"})
    watcher = Watcher()
    with pytest.raises(RunFailedError):
        compute(hot, tmp_path, place, watcher)
    assert "diverged in trial 0 at cost 0.1; lower learning_rate (it is 1e+38)" in watcher.messages[0]


def test_every_output_of_a_stand_in_says_so(done, benchmark):
    for name in ("README.md", "tables.md", "figures/figure-4.svg"):
        text = (done / name).read_text()
        assert "stand-in" in text, name
        assert "quick run" in text.lower(), name
    rows = (done / "benchmark.csv").read_text().splitlines()
    assert all(row.endswith(",,") for row in rows[1:])  # nothing published beside a stand-in


@pytest.mark.usefixtures("without_figures")
def test_tables_can_be_drawn_without_data_from_the_records_alone(done, benchmark, synthetic):
    before = tables(done)
    write_outputs(done, [benchmark, synthetic], find_published(), None)
    assert tables(done) == before


def test_records_of_different_data_are_not_mixed(done, benchmark, place, tmp_path):
    records = list(matching(benchmark, Store(done, "benchmark")))
    other = replace(records[0], spec={**records[0].spec, "data": "0" * 64})
    with pytest.raises(MixedDataError, match="made with different data"):
        collect(benchmark, [*records, other])


def test_an_empty_store_has_nothing_to_show(benchmark, tmp_path):
    with pytest.raises(NothingToShowError, match="no record"):
        write_outputs(tmp_path, [benchmark], find_published(), None)


def test_results_do_not_depend_on_the_number_of_stacks_at_a_time(benchmark, place):
    from demur.paper.compute import Workplace
    from demur.paper.compute import compute as compute_unit

    plan = make_plan(benchmark.only(problems=("yeast",), methods=("MPC+log",)), Store("/nonexistent", "x"), place)
    outcomes = [compute_unit(plan.units[0], Workplace(CPU, place, n_workers)).scores for n_workers in (1, 2)]
    assert outcomes[0] == outcomes[1]


def test_lines_are_for_log_files(done, capsys):
    record = Record.from_json(next(done.glob("records/synthetic/*.json")).read_text())
    unit = make_plan_unit()
    lines = Lines()
    lines.start(3, 1.0)
    lines.finished(unit, record)
    lines.warn("careful")
    err = capsys.readouterr().err
    assert err.startswith("[1/3, 0 s] benchmark vehicle CE:")
    assert err.endswith("demur: careful\n")


def make_plan_unit():
    from demur.paper.methods import BENCHMARK

    plan = make_plan(BENCHMARK, Store("/nonexistent", "benchmark"), DataPlace("/nonexistent", stand_ins=True))
    return next(unit for unit in plan.units if unit.method.name == "CE")


SMALL = ["--quick", "--problems", "vehicle", "--methods", "CE", "--set", "epochs=1", "--data", "/nonexistent"]


def test_the_module_needs_numpy_scipy_and_torch_alone(tmp_path):
    """On a machine without the packages that draw, the records can still be computed."""
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'pooch', 'matplotlib', 'dask', 'distributed', 'sklearn', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "from demur.paper.run import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "benchmark", *SMALL, "--out", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert finished.returncode == 0, finished.stderr
    assert len(list(tmp_path.glob("records/benchmark/vehicle.CE.*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--problems", "nowhere"], 2, "unknown problem 'nowhere'; there are vehicle"),
        (["--methods", "SVM"], 2, "unknown method 'SVM'"),
        (["--set", "speed=9"], 2, "has no setting 'speed'"),
        (["--set", "epochs"], 2, "--set takes NAME=VALUE"),
        (["--set", "epochs=many"], 2, "setting epochs must be like 150, got 'many'"),
        (["--device", "tpu"], 2, "unknown device 'tpu'"),
        (["--out", "/proc/nowhere"], 2, "cannot write to"),
    ],
)
def test_wrong_calls_are_one_sentence(arguments, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert module.main(["benchmark", *SMALL, *arguments]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_the_module_fails_with_one_when_the_work_fails(capsys, tmp_path):
    assert module.main(["benchmark", *SMALL, "--set", "learning_rate=1e38", "--out", str(tmp_path)]) == 1
    assert "1 of the units failed" in capsys.readouterr().err


def test_synthetic_risks_are_close_to_those_of_the_rule_that_knows_the_distribution(synthetic, place):
    """The counts of false accepts and rejects, and the test risk, fit the exact posterior."""
    from demur.paper.problems import gaussians_of, prepare

    problem = prepare("20", synthetic.protocol, place, CPU)
    gaussians = gaussians_of(synthetic.protocol)
    for cost in (0.1, 0.3):
        reject = problem.best_confidence.numpy() <= 1 - cost
        exact = gaussians.bayes_summary(cost).rejection_rate.value
        assert abs(reject.mean() - exact) < 4 * np.sqrt(exact / len(reject))


@pytest.mark.usefixtures("without_figures")
def test_the_other_scaling_is_shown_beside_the_standard_one_when_both_are_in_the_store(benchmark, place, tmp_path):
    other = benchmark.with_settings({"scaling": "range"})
    compute(benchmark, tmp_path, place)
    assert write_outputs(tmp_path, [benchmark], find_published(), place).rescaled is None
    before = (tmp_path / "benchmark.csv").read_text()
    compute(other, tmp_path, place)
    material = write_outputs(tmp_path, [benchmark], find_published(), place)
    assert not material.rescaled.missing
    assert any(judged.rescaled for judged in material.claims)
    assert "here, features in [-1, 1]" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "benchmark.csv").read_text() == before


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

    with pytest.raises(ValueError, match="scaling must be 'standard', 'range' or 'none', got 'log'"):
        prepare("vehicle", benchmark.with_settings({"scaling": "log"}).protocol, place, CPU)


def test_figures_on_some_of_the_test_rows_say_on_how_many(monkeypatch):
    from demur.paper import problems
    from demur.paper.methods import BENCHMARK, quick

    monkeypatch.setattr(problems, "fingerprint", lambda name, folder: ("0", "whole"))
    short, whole = quick(BENCHMARK).protocol, BENCHMARK.protocol
    assert problems.identify("covtype", short, DataPlace()).note == "measured on 10,000 of 565,892 test rows"
    assert problems.identify("letter", short, DataPlace()).note == "whole"
    assert problems.identify("covtype", whole, DataPlace()).note == "whole"
