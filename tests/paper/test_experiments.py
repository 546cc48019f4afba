"""The declaration is the paper's: its methods, grids and sizes, counted."""

from dataclasses import replace
from pathlib import Path

import pytest

from demur.errors import InputError
from demur.losses import get
from demur.paper.experiments import BENCHMARK, SYNTHETIC, Method, quick, restrict, with_losses
from demur.paper.problems import DataPlace
from demur.paper.trial_jobs import make_jobs
from demur.paper.trials import grid_size, make_grid, spec_of, split_rows


def test_the_benchmark_trains_7950_networks_for_the_papers_methods():
    per_trial = sum(grid_size(method, BENCHMARK.protocol) for method in BENCHMARK.methods)
    assert per_trial * BENCHMARK.protocol.trials * len(BENCHMARK.problems) == 7950


def test_the_papers_grids():
    assert [method.name for method in BENCHMARK.methods] == [
        *("APC+log", "APC+exp", "MPC+log", "OVA+log", "OVA+exp", "CE", "OVA+hin")
    ]
    assert [method.name for method in BENCHMARK.more] == ["OVA+sq", "OVA+sqhin", "CS+hin", "BEP"]
    assert [int(size) for size in SYNTHETIC.problems] == [20, 50, 100, 200, 500, 1000, 1500, 2000, 5000, 10_000]
    assert len(SYNTHETIC.methods) == 9
    for experiment, units, epochs, trials in ((BENCHMARK, 50, 150, 10), (SYNTHETIC, 3, 100, 3)):
        protocol = experiment.protocol
        assert (protocol.hidden_units, protocol.epochs, protocol.trials) == (units, epochs, trials)
        assert protocol.costs == (0.05, 0.1, 0.2, 0.3, 0.4)
        assert protocol.weight_decays == (1e-7, 1e-4, 1e-1)


@pytest.mark.parametrize("experiment", [BENCHMARK, SYNTHETIC], ids=lambda one: one.name)
def test_every_method_is_a_registered_loss_and_stays_in_the_quick_version(experiment):
    for method in experiment.all_methods:
        assert get(method.loss).has_rejector == bool(method.betas)
    short = quick(experiment)
    assert short.all_methods == experiment.all_methods
    assert short.quick
    if experiment is BENCHMARK:
        assert short.problems == experiment.problems


@pytest.mark.parametrize("experiment", [BENCHMARK, SYNTHETIC], ids=lambda one: one.name)
def test_every_open_choice_has_a_value_and_a_reason(experiment):
    choices = experiment.protocol.choices()
    assert {"batch_size", "learning_rate", "scaling", "seed"} <= set(choices)
    assert ("split_seed" in choices) == (experiment is BENCHMARK)
    assert ("gaussian_seed" in choices) == (experiment is SYNTHETIC)
    assert all(len(why) > 20 for _, why in choices.values())


def test_every_cell_of_the_grid_is_there_once():
    protocol = BENCHMARK.protocol
    for method in BENCHMARK.all_methods:
        loss = get(method.loss)
        grid = make_grid(method, 4, protocol, {7: split_rows(50, "vehicle", 7, protocol)})
        seen = [
            (cost, entry.weight_decay, getattr(entry.loss, "beta", None), getattr(decider, "tau", None))
            for part in grid.parts
            for cost in part.costs
            for entry in part.entries
            for decider in entry.deciders
        ]
        n_taus = len(getattr(loss, "tau_candidates", ())) or 1
        assert len(seen) == len(set(seen)) == len(protocol.costs) * 3 * max(1, len(method.betas)) * n_taus
        assert len(grid.networks) == grid_size(method, protocol)
        for part in grid.parts:
            for number, entry in enumerate(part.entries, start=part.first):
                assert grid.networks[number].weight_decay == entry.weight_decay
                assert not loss.trained_for_cost or (grid.networks[number].cost,) == part.costs


def test_beta_is_the_value_of_its_side_at_its_cost():
    method = Method("MPC+log", betas=("acc", "rej", "mean"))
    grid = make_grid(method, 6, BENCHMARK.protocol, {0: split_rows(50, "satimage", 0, BENCHMARK.protocol)})
    for part in grid.parts:
        assert [entry.loss.beta for entry in part.entries] == ["acc", "rej", "mean"] * 3
        for number, entry in enumerate(part.entries, start=part.first):
            expected = get("mpc+log", beta=entry.loss.beta).beta_value(6, part.costs[0])
            assert grid.networks[number].hyper["beta"] == pytest.approx(expected)


def test_a_trials_networks_share_rows_and_seed_so_that_they_share_batches():
    splits = {trial: split_rows(50, "vehicle", trial, BENCHMARK.protocol) for trial in (0, 1)}
    grid = make_grid(BENCHMARK.methods[0], 4, BENCHMARK.protocol, splits)
    assert len({(network.seed, network.rows.tobytes()) for network in grid.networks}) == 2


def test_splits_differ_between_trials_and_data_sets_but_not_between_runs():
    protocol = BENCHMARK.protocol
    first = split_rows(100, "vehicle", 0, protocol)
    assert (first.validation == split_rows(100, "vehicle", 0, protocol).validation).all()
    assert (first.validation != split_rows(100, "vehicle", 1, protocol).validation).any()
    assert (first.validation != split_rows(100, "yeast", 0, protocol).validation).any()
    assert len(first.validation) == 20
    assert set(first.train) | set(first.validation) == set(range(100))


def test_parts_of_the_source_are_the_same_rows_in_every_trial():
    protocol = replace(BENCHMARK.protocol, validation="source")
    first, second = (split_rows(100, "letter", trial, protocol) for trial in (0, 1))
    assert (first.validation == second.validation).all()
    assert len(first.validation) == 30
    assert first.seed != second.seed
    others = (split_rows(100, "covtype", 1, one) for one in (protocol, BENCHMARK.protocol))
    assert len({split.validation.tobytes() for split in others}) == 1
    with pytest.raises(InputError, match="validation must be 'random' or 'source', got 'page'"):
        split_rows(100, "letter", 0, replace(protocol, validation="page"))


def test_a_continued_run_makes_its_jobs_where_a_fresh_one_does():
    fresh = make_jobs(BENCHMARK, DataPlace())
    done = {(job.problem, job.method.name, trial) for job in fresh[::2] for trial in job.trials}
    assert make_jobs(BENCHMARK, DataPlace(), done) == fresh[1::2]
    partly = make_jobs(BENCHMARK, DataPlace(), {("vehicle", "CE", 0), ("vehicle", "CE", 4)})
    (rest,) = [job for job in partly if (job.problem, job.method.name) == ("vehicle", "CE")]
    assert rest.trials == (1, 2, 3, 5, 6, 7, 8, 9)


def test_specifications_differ_with_everything_that_decides_a_result():
    plain = make_jobs(BENCHMARK, DataPlace())[0].spec
    for other in (
        make_jobs(BENCHMARK.with_settings({"learning_rate": "0.01"}), DataPlace()),
        make_jobs(BENCHMARK, DataPlace("/nonexistent", stand_ins=True)),
    ):
        assert other[0].spec != plain
    assert make_jobs(BENCHMARK.with_settings({"trials": "5"}), DataPlace())[0].spec == plain


LOSS_OF_ONES_OWN = """
from dataclasses import dataclass
import torch
from demur.losses import CrossEntropy

@dataclass(frozen=True)
class Halved(CrossEntropy):
    @property
    def name(self):
        return "halved"
    def forward(self, scores, y, cost):
        return super().forward(scores, y, cost) / 2
"""


@pytest.fixture
def own_loss(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(LOSS_OF_ONES_OWN)
    return f"{path}:Halved"


def test_a_registered_loss_and_a_file_are_methods(own_loss):
    benchmark, synthetic = with_losses([BENCHMARK, SYNTHETIC], ["ce", "apc+log", "bep", own_loss])
    assert benchmark.more == (*BENCHMARK.more, Method("halved", own_loss))
    assert [method.name for method in synthetic.more] == ["halved"]  # the others are methods of the benchmark
    only = restrict([benchmark, synthetic], [], ["ce", own_loss])
    assert [[method.name for method in one.all_methods] for one in only] == [["CE", "halved"]] * 2
    alone = with_losses([SYNTHETIC], ["apc+log"])[0].more
    assert alone == (Method("apc+log", betas=("acc", "rej", "mean")),)


def test_another_text_of_the_file_is_another_loss(own_loss):
    method, protocol = Method("halved", own_loss), BENCHMARK.protocol
    before = spec_of("benchmark", "vehicle", method, protocol)
    path = Path(own_loss.rpartition(":")[0])
    path.write_text(path.read_text().replace("/ 2", "/ 3"))
    assert spec_of("benchmark", "vehicle", method, protocol)["source"] != before["source"]
    assert "source" not in spec_of("benchmark", "vehicle", Method("CE"), protocol)


def test_what_cannot_be_a_method_is_refused_in_one_sentence(tmp_path):
    for name, message in (
        ("svm", r"unknown method 'svm'; there are APC\+log.*`demur methods`, and file\.py:Class"),
        ("margin+log", "for two classes only"),
        (f"{tmp_path}/none.py:Loss", "there is no file"),
    ):
        with pytest.raises(InputError, match=message):
            with_losses([BENCHMARK], [name])
    (tmp_path / "same.py").write_text(LOSS_OF_ONES_OWN.replace("halved", "ce"))
    with pytest.raises(InputError, match="named 'ce' like a method of the paper"):
        with_losses([BENCHMARK], [f"{tmp_path}/same.py:Halved"])
