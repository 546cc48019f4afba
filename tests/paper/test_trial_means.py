"""Means, the test behind bold figures, tables and claims: on figures that a reader can check."""

import csv
from dataclasses import replace

import pytest

from demur.datasets import paper_gaussians
from demur.paper.claims import BENCHMARK_CLAIMS, SYNTHETIC_CLAIMS, Known, judge
from demur.paper.experiments import BENCHMARK, SYNTHETIC
from demur.paper.pages import full_table, rejection_table, results_csv
from demur.paper.population import PopulationErrors
from demur.paper.records import Record, Score
from demur.paper.trial_means import (
    Numbers,
    Published,
    Value,
    agreement,
    best_and_equivalent,
    collect,
    find_published,
    worse_than,
)
from demur.paper.trials import spec_of

COSTS = BENCHMARK.protocol.costs


def record(experiment, problem, method, scores):
    spec = {**spec_of(experiment.name, problem, method, experiment.protocol), "data": "0"}
    environment = {
        **{"demur": "0", "python": "3", "torch": "2", "numpy": "2", "device": "abacus", "device_type": "cpu"},
        **{"cores": 2, "system": "Linux"},
    }
    trials = tuple(sorted({score.trial for score in scores}))
    return Record(spec, trials, "", tuple(scores), 3, 0, 1.0, 0.5, environment)


def results(experiment, outcome):
    """Make records in which ``outcome(problem, method, cost, trial)`` gives (rejected, wrong) out of 1000."""
    records = []
    for problem in experiment.problems:
        for method in experiment.all_methods:
            scores = []
            for trial in range(experiment.protocol.trials):
                for cost in COSTS:
                    rejected, wrong = outcome(problem, method.name, cost, trial)
                    hyper = {"weight_decay": 1e-7, "tau": 0.0}
                    rivals = (0.1, 0.2, 0.3, 0.4, 0.5) * 3
                    scores.append(Score(trial, cost, 1000, rejected, wrong, hyper, 0.1, rivals, 1, 2))
            records.append(record(experiment, problem, method, scores))
    return collect(experiment, records)


def plain(problem, method, cost, trial):
    """CE is best everywhere, MPC+log second, everything else third; classifier-rejectors decline all of yeast."""
    if problem == "yeast" and method in ("APC+log", "APC+exp", "MPC+log"):
        return 1000, 0
    wrong = {"CE": 40, "MPC+log": 50}.get(method, 60)
    return 100, wrong + trial % 3


@pytest.fixture(scope="module")
def ours():
    return results(BENCHMARK, plain)


def test_means_and_deviations_are_over_trials(ours):
    value = ours.numbers(["CE"]).values["zoc_risk", "letter", 0.2, "CE"]
    risks = [(40 + trial % 3) / 1000 + 0.2 * 0.1 for trial in range(10)]
    mean = sum(risks) / 10
    assert value.mean == pytest.approx(mean)
    assert value.std == pytest.approx((sum((risk - mean) ** 2 for risk in risks) / 9) ** 0.5)
    assert value.n == 10


def test_where_everything_is_rejected_there_is_no_accuracy(ours):
    numbers = ours.numbers(["MPC+log", "CE"])
    assert numbers.values["accepted_accuracy", "yeast", 0.2, "MPC+log"] == Value(None, None, 0)
    table = full_table("accepted_accuracy", ours, ["MPC+log", "CE"])
    assert any(line.startswith("| yeast | 0.05 | - | **0.95") for line in table.splitlines())
    rows = list(csv.DictReader(results_csv(ours, Numbers()).splitlines()))
    empty = [row for row in rows if row["mean"] == ""]
    assert {(row["metric"], row["dataset"], row["method"]) for row in empty} == {
        ("accepted_accuracy", "yeast", method) for method in ("APC+log", "APC+exp", "MPC+log")
    }
    assert len(rows) == 3 * 5 * 5 * 11


def test_csv_has_the_published_figures_beside_ours(ours):
    paper = Numbers({("zoc_risk", "letter", 0.2, "CE"): Value(0.083, 0.0018, 10)})
    rows = list(csv.DictReader(results_csv(ours, paper).splitlines()))
    assert list(rows[0]) == ["metric", "dataset", "cost", "method", "mean", "std", "published_mean", "published_std"]
    row = next(row for row in rows if row["published_mean"])
    assert (row["dataset"], row["cost"], row["method"]) == ("letter", "0.2", "CE")
    assert (row["published_mean"], row["published_std"]) == ("0.0830", "0.0018")


def test_a_table_shows_the_note_the_difference_and_the_best(ours):
    paper = Numbers({("zoc_risk", "covtype", 0.2, "CE"): Value(0.083, 0.0018, 10)})
    noted = replace(ours, notes={"covtype": "measured on 415,463 of 565,892 test rows"})
    lines = full_table("zoc_risk", noted, ["CE", "OVA+log"], paper).splitlines()
    first = next(n for n, line in enumerate(lines) if "covtype<br>(measured on 415,463 of 565,892 test rows)" in line)
    line = lines[first + COSTS.index(0.2)]
    assert "**0.061** (0.0009)<br>paper 0.083 (0.0018), -0.022" in line
    assert line.endswith("| 0.081 (0.0009) |")


def test_the_bayes_line_is_in_table_2_and_in_the_csv():
    part = results(SYNTHETIC, plain)
    bayes = {cost: paper_gaussians().bayes_summary(cost, n_draws=2**16) for cost in (0.05, 0.4)}
    published = Numbers({("rejection_ratio", "10000", 0.4, "CE"): Value(0.173, 0.008, 3)})
    table = rejection_table(part, published, bayes)
    assert table.splitlines()[-1].endswith("| 10.0 (0.0)<br>paper 17.3 (0.8) | 17.6 |")
    rows = list(csv.DictReader(results_csv(part, published, dataset="synthetic-{}", bayes=bayes).splitlines()))
    exact = next(row for row in rows if row["method"] == "Bayes" and row["cost"] == "0.4")
    assert float(exact["mean"]) == pytest.approx(bayes[0.4].risk.value, abs=1e-6)
    assert exact["dataset"] == "synthetic-20"


def test_best_and_equivalent():
    assert best_and_equivalent({}) == set()
    nearly = 0.1 + 0.2  # a rounding error above 0.3
    assert best_and_equivalent({"a": [0.3] * 10, "b": [nearly] * 10}) == {"a", "b"}
    assert best_and_equivalent({"a": [0.2, 0.2], "b": [0.2, 0.2], "c": [0.3, 0.3]}) == {"a", "b"}
    noisy = {"a": [0.10, 0.11, 0.12], "b": [0.11, 0.12, 0.13], "c": [0.20, 0.21, 0.22]}
    assert best_and_equivalent(noisy) == {"a", "b"}


def test_the_t_test_gives_the_papers_bold_figures_in_170_of_175_cells(published_folder):
    paper = find_published(published_folder).benchmark
    agree = total = 0
    for (problem, cost), bold in paper.bold.items():
        cells = {
            method: value
            for (metric, where, at, method), value in paper.values.items()
            if (metric, where, at) == ("zoc_risk", problem, cost)
        }
        best = min(cells, key=lambda method: (cells[method].mean, cells[method].std))
        for method, cell in cells.items():
            equivalent = method == best or not worse_than(cell, cells[best])
            agree += equivalent == (method in bold)
            total += 1
    assert (agree, total) == (170, 175)


def test_claims_on_figures_made_to_confirm_or_refute_them(ours):
    verdicts = {one.claim.statement: one.ours for one in judge(BENCHMARK_CLAIMS, ours, Numbers())}
    find = {name: next(v for s, v in verdicts.items() if name in s) for name in ("best", "loses", "MPC+log beats")}
    assert {name: finding.verdict for name, finding in find.items()} == dict.fromkeys(find, "holds")
    yeast = next(v for s, v in verdicts.items() if "reject everything" in s)
    assert (yeast.verdict, yeast.counts) == ("holds", "15 of 15")
    no_refit = next(v for s, v in verdicts.items() if "one training" in s)
    assert no_refit.verdict == "does not hold"  # these records all pretend to have trained 3 networks

    def reverse(problem, method, cost, trial):
        rejected, wrong = plain(problem, method, cost, trial)
        return rejected, 100 - wrong if rejected < 1000 else 0

    backwards = {
        one.claim.statement: one.ours for one in judge(BENCHMARK_CLAIMS, results(BENCHMARK, reverse), Numbers())
    }
    for name in ("best", "loses", "MPC+log beats"):
        finding = next(v for s, v in backwards.items() if name in s)
        assert finding.verdict == "does not hold", name


def errors(on_the_other_side):
    """Errors of every beta on its own side, and some on the other."""
    sides = {"acc": (7, on_the_other_side), "rej": (on_the_other_side, 7)}
    names = [method.name for method in SYNTHETIC.methods if method.betas]
    return {(name, cost): PopulationErrors(100, *sides[name[-3:]]) for name in names for cost in COSTS}


def test_synthetic_claims_follow_the_counts():
    gaussians = paper_gaussians()
    bayes = {cost: gaussians.bayes_summary(cost, n_draws=2**14) for cost in COSTS}

    def perfect(problem, method, cost, trial):
        best = bayes[cost]
        rejected = round(1000 * best.rejection_rate.value)
        rejected += {"acc": -50, "rej": 50}.get(method[-3:], 0)
        return rejected, round(1000 * (best.risk.value - cost * best.rejection_rate.value)) + (method == "OVA+log") * 20

    judged = {
        one.claim.statement: one.ours.verdict
        for one in judge(SYNTHETIC_CLAIMS, results(SYNTHETIC, perfect), Numbers(), Known(bayes, errors(0)))
    }
    for statement, verdict in judged.items():
        if "errs only by" in statement or "OVA+log does no better" in statement or "converges" in statement:
            assert verdict == "holds", statement
        if "less stable" in statement:
            assert verdict == "does not hold"
    wrong = judge(SYNTHETIC_CLAIMS, results(SYNTHETIC, perfect), Numbers(), Known(bayes, errors(1)))
    about_beta = [one.ours for one in wrong if "beta" in one.claim.statement]
    assert len(about_beta) == 6
    assert {finding.verdict for finding in about_beta} == {"does not hold"}


def test_the_papers_tables_confirm_what_its_text_says_where_they_do(ours, published_folder):
    published = find_published(published_folder)
    judged = {one.claim.statement: one.paper for one in judge(BENCHMARK_CLAIMS, ours, published.benchmark)}
    assert next(f for s, f in judged.items() if "MPC+log beats" in s).verdict == "holds"
    assert next(f for s, f in judged.items() if "CE is the best" in s).counts == "21 of 25"
    assert next(f for s, f in judged.items() if "one training" in s).verdict == "not tested"
    assert len(published.benchmark.values) == 525
    assert published.synthetic.mean("rejection_ratio", "10000", 0.2, "CE") == pytest.approx(0.283)


def test_nothing_published_is_no_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEMUR_PUBLISHED", raising=False)
    assert find_published() == Published()


def test_comparison_counts_cells():
    keys = [("zoc_risk", problem, 0.2, "CE") for problem in ("vehicle", "yeast", "letter")]
    mine = Numbers({key: Value(mean, 0.01, 10) for key, mean in zip(keys, (0.1, 0.2, 0.3), strict=True)})
    paper = Numbers({key: Value(mean, 0.01, 10) for key, mean in zip(keys, (0.1, 0.18, 0.2), strict=True)})
    found = agreement(mine, paper)
    assert (found.of["zoc_risk"], found.at_or_below, found.within["zoc_risk"]) == (3, 1, 2)
    assert found.above == ["CE letter 0.2"]


def test_missing_trials_are_named(ours):
    more = replace(BENCHMARK, protocol=replace(BENCHMARK.protocol, trials=12))
    assert replace(ours, experiment=more).missing[0] == "APC+log on vehicle: 2 of 12 trials"


def test_being_the_best_of_one_is_no_evidence():
    alone = results(BENCHMARK.only(methods=("CE",)), plain)
    best = next(one for one in judge(BENCHMARK_CLAIMS, alone, Numbers()) if "CE is the best" in one.claim.statement)
    assert best.ours.verdict == "not tested"
