"""The declaration is the paper's: its methods, grids and sizes, counted."""

import pytest

from demur.losses import get
from demur.paper.grid import grid_size, make_grid, split_rows
from demur.paper.methods import BENCHMARK, SYNTHETIC, quick
from demur.paper.problems import DataIdentity
from demur.paper.protocol import Method
from demur.paper.units import make_units


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
    choices = {choice.setting: choice for choice in experiment.protocol.choices()}
    assert {"batch_size", "learning_rate", "scaling", "seed"} <= set(choices)
    assert ("split_seed" in choices) == (experiment is BENCHMARK)
    assert ("gaussian_seed" in choices) == (experiment is SYNTHETIC)
    assert all(len(choice.why) > 20 for choice in choices.values())


def test_every_cell_of_the_grid_is_there_once():
    protocol = BENCHMARK.protocol
    for method in BENCHMARK.all_methods:
        grid = make_grid(method, 4, protocol, {7: split_rows(50, "vehicle", 7, protocol)})
        loss = get(method.loss)
        seen = [(c.cost, *sorted(c.hyper.items())) for c in grid.candidates[7]]
        n_taus = len(getattr(loss, "tau_candidates", ())) or 1
        assert len(seen) == len(set(seen)) == len(protocol.costs) * 3 * max(1, len(method.betas)) * n_taus
        assert len(grid.networks) == grid_size(method, protocol)
        for candidate in grid.candidates[7]:
            network = grid.networks[candidate.network]
            assert network.weight_decay == candidate.hyper["weight_decay"]
            assert not loss.trained_for_cost or network.cost == candidate.cost


def test_beta_is_the_value_of_its_side_at_its_cost():
    method = Method("MPC+log", betas=("acc", "rej", "mean"))
    grid = make_grid(method, 6, BENCHMARK.protocol, {0: split_rows(50, "satimage", 0, BENCHMARK.protocol)})
    for candidate in grid.candidates[0]:
        expected = get("mpc+log", beta=candidate.hyper["beta"]).beta_value(6, candidate.cost)
        assert grid.networks[candidate.network].hyper["beta"] == pytest.approx(expected)


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


def test_a_continued_run_cuts_its_units_where_a_fresh_one_does():
    identities = {name: DataIdentity(name) for name in BENCHMARK.problems}
    fresh = make_units(BENCHMARK, identities)
    done = {(unit.problem, unit.method.name, trial) for unit in fresh[::2] for trial in unit.trials}
    assert make_units(BENCHMARK, identities, done) == fresh[1::2]
    assert len({unit.name for unit in fresh}) == len(fresh)
    partly = make_units(BENCHMARK, identities, {("vehicle", "CE", 0), ("vehicle", "CE", 4)})
    names = [unit.name for unit in partly if (unit.problem, unit.method.name) == ("vehicle", "CE")]
    assert len(names) == 1
    assert ".trials-1-3,5-9." in names[0]


def test_names_of_units_differ_with_everything_that_decides_their_result():
    identities = {name: DataIdentity(name) for name in BENCHMARK.problems}
    plain = make_units(BENCHMARK, identities)[0].name
    for other in (
        make_units(BENCHMARK.with_settings({"learning_rate": "0.01"}), identities),
        make_units(BENCHMARK, {name: DataIdentity("other") for name in identities}),
    ):
        assert other[0].name != plain
    assert make_units(BENCHMARK.with_settings({"trials": "5"}), identities)[0].name == plain
