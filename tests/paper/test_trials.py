"""Counting and choosing, against the metrics that users call."""

import numpy as np
import pytest
import torch

from demur.estimators.network_selection import FittedNetworks, HeldOut, grid_of, judged
from demur.losses import get
from demur.metrics import accepted_accuracy, rejection_rate, zero_one_c_risk
from demur.paper import trials
from demur.paper.experiments import BENCHMARK, Method
from demur.paper.problems import DataIdentity, Problem, prepare
from demur.paper.trials import Answerer, TrialJob, compute, count, make_grid, split_rows
from demur.training import MLP, Trained, train


def random_networks(loss, n, seed=0):
    architecture = MLP((3, 4, loss.n_outputs(5)))
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, architecture.vector_length, generator=generator)
    return Trained(architecture, vectors, torch.zeros(n, dtype=torch.bool))


@pytest.mark.parametrize("method", BENCHMARK.all_methods, ids=lambda method: method.name)
def test_counts_agree_with_the_metrics_one_answerer_at_a_time(method, monkeypatch):
    monkeypatch.setattr(trials, "NUMBERS_AT_A_TIME", 4000)  # several blocks of rows
    rng = np.random.default_rng(0)
    X, y = torch.tensor(rng.normal(size=(97, 3)), dtype=torch.float32), torch.tensor(rng.integers(0, 5, 97))
    grid = make_grid(method, 5, BENCHMARK.protocol, {0: split_rows(97, "vehicle", 0, BENCHMARK.protocol)})
    trained = random_networks(get(method.loss).for_classes(5), len(grid.networks))
    answerers = [
        Answerer(part.first + number, decider, cost)
        for part in grid.parts
        for number, entry in enumerate(part.entries)
        for decider in entry.deciders
        for cost in part.costs
    ]
    counts = count(trained, answerers, X, y)
    for index in range(0, len(answerers), 7):
        one = answerers[index]
        decision = one.loss.decide(trained.module(one.network)(X).detach(), one.cost).numpy()
        answers = np.where(decision.reject, -1, decision.label)
        risk = (counts.wrong[index] + one.cost * counts.rejected[index]) / counts.n
        assert risk == pytest.approx(zero_one_c_risk(y.numpy(), answers, cost=one.cost))
        assert counts.rejected[index] / counts.n == pytest.approx(rejection_rate(answers))
        accepted = counts.n - counts.rejected[index]
        if accepted:
            assert 1 - counts.wrong[index] / accepted == pytest.approx(accepted_accuracy(y.numpy(), answers))


def test_disagreements_with_the_best_rule():
    architecture = MLP((1, 1, 2))
    vector = torch.tensor([1.0, 0.0, 2.0, -2.0, 0.0, 0.0])  # scores (2 relu(x), -2 relu(x))
    trained = Trained(architecture, vector[None], torch.zeros(1, dtype=torch.bool))
    X, y = torch.tensor([[0.0], [3.0], [0.0], [3.0]]), torch.tensor([0, 0, 0, 1])
    best = torch.tensor([0.95, 0.95, 0.6, 0.6], dtype=torch.float64)
    counts = count(trained, [Answerer(0, get("ce"), 0.2)], X, y, best_confidence=best)
    assert (counts.rejected[0], counts.wrong[0]) == (2, 1)
    assert (counts.false_rejects[0], counts.false_accepts[0]) == (1, 1)


@pytest.mark.parametrize(
    "method",
    [Method("CE"), Method("OVA+hin"), Method("MPC+log", betas=("acc", "rej", "mean"))],
    ids=lambda method: method.name,
)
def test_the_tables_choose_as_reject_classifier_does(method, benchmark, place, monkeypatch):
    """Given the same networks and rows, the function that RejectClassifier judges by gives the records' choices."""
    kept = []

    def train_and_keep(*arguments, **options):
        kept.append(train(*arguments, **options))
        return kept[0]

    monkeypatch.setattr(trials, "train", train_and_keep)
    device, protocol = torch.device("cpu"), benchmark.protocol
    job = TrialJob("benchmark", "vehicle", method, (1,), protocol, DataIdentity("0"))
    record = compute(job, place, device)
    problem = prepare("vehicle", protocol, place, device)
    split = split_rows(len(problem.X), "vehicle", 1, protocol)
    X, y = problem.X[split.validation], problem.y[split.validation].numpy()
    weight, d = np.ones(len(y)), X.shape[1]
    scores = {score.cost: score for score in record.scores}
    for part in make_grid(method, problem.n_classes, protocol, {1: split}).parts:
        networks = kept[0].take(range(part.first, part.first + len(part.entries)))
        for cost in part.costs:
            candidates = [
                judged(entry, loss, [n], HeldOut(y, decision.label, decision.reject, found, weight), cost)
                for n, entry in enumerate(part.entries)
                for loss in entry.deciders
                for one in [FittedNetworks(networks.take([n]), np.zeros(d), np.ones(d), loss=loss)]
                for decision, found in [one.decide_and_score(X.numpy(), cost, problem.n_classes)]
            ]
            best = min(candidates, key=lambda one: one.risk)
            assert tuple(round(one.risk, 6) for one in candidates) == scores[cost].rivals
            assert best.weight_decay == scores[cost].hyper["weight_decay"]
            assert getattr(best.loss, "tau", None) == scores[cost].hyper.get("tau")
            assert getattr(best.loss, "beta", None) == scores[cost].hyper.get("beta")


def test_the_first_of_the_grid_is_chosen_among_equals(benchmark):
    loss = get("ova+hin")
    trained = Trained(MLP((1, 1, 2)), torch.zeros(3, 6), torch.tensor([True, False, False]))
    entries = [entry for decay in (3.0, 2.0, 1.0) for entry in grid_of("ova+hin", 2, decay, 0.2)]
    X, y = torch.zeros(4, 1), torch.tensor([0, 0, 0, 1])
    job = TrialJob("benchmark", "vehicle", Method("OVA+hin"), (0,), benchmark.protocol, DataIdentity("0"))
    split = trials.Split(np.arange(0), np.arange(4), 0)
    part = trials.GridPart(0, 0, entries, (0.2,))
    (best,) = trials._choose(job, Problem(2, X, y, X, y), part, trained, split)
    # with all scores 0, thresholds from 0 on reject everything, which costs 0.2
    assert (best.hyper, best.risk) == ({"weight_decay": 2.0, "tau": 0.0}, pytest.approx(0.2))
    assert best.rivals == (*[None] * 5, *[0.25, 0.25, 0.2, 0.2, 0.2] * 2)
    assert len(loss.tau_candidates) == 5
