"""Counting and choosing, against the metrics that users call."""

import numpy as np
import pytest
import torch

from demur.losses import get
from demur.metrics import accepted_accuracy, rejection_rate, zero_one_c_risk
from demur.paper import scoring
from demur.paper.grid import Candidate, make_grid, split_rows
from demur.paper.methods import BENCHMARK
from demur.training import MLP, Trained


def random_networks(loss, n, seed=0):
    architecture = MLP((3, 4, loss.n_outputs(5)))
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, architecture.vector_length, generator=generator)
    return Trained(architecture, vectors, torch.zeros(n, dtype=torch.bool))


@pytest.mark.parametrize("method", BENCHMARK.all_methods, ids=lambda method: method.name)
def test_counts_agree_with_the_metrics_one_candidate_at_a_time(method, monkeypatch):
    monkeypatch.setattr(scoring, "NUMBERS_AT_A_TIME", 4000)  # several blocks of rows
    loss = get(method.loss).for_classes(5)
    rng = np.random.default_rng(0)
    X, y = torch.tensor(rng.normal(size=(97, 3)), dtype=torch.float32), torch.tensor(rng.integers(0, 5, 97))
    split = split_rows(97, "vehicle", 0, BENCHMARK.protocol)
    grid = make_grid(method, 5, BENCHMARK.protocol, {0: split})
    trained = random_networks(loss, len(grid.networks))
    candidates = grid.candidates[0]
    counts = scoring.count(loss, trained, candidates, X, y, width=8)
    costs = np.array([candidate.cost for candidate in candidates])
    risks = counts.risk(costs)
    for index in range(0, len(candidates), 7):
        candidate = candidates[index]
        own = get(method.loss, **({"tau": candidate.hyper["tau"]} if "tau" in candidate.hyper else {})).for_classes(5)
        decision = own.decide(trained.module(candidate.network)(X).detach(), candidate.cost).numpy()
        answers = np.where(decision.reject, -1, decision.label)
        assert risks[index] == pytest.approx(zero_one_c_risk(y.numpy(), answers, cost=candidate.cost))
        assert counts.rejected[index] / counts.n == pytest.approx(rejection_rate(answers))
        accepted = counts.n - counts.rejected[index]
        if accepted:
            assert 1 - counts.wrong[index] / accepted == pytest.approx(accepted_accuracy(y.numpy(), answers))


def test_disagreements_with_the_best_rule():
    loss = get("ce")
    architecture = MLP((1, 1, 2))
    vector = torch.tensor([1.0, 0.0, 2.0, -2.0, 0.0, 0.0])  # scores (2 relu(x), -2 relu(x))
    trained = Trained(architecture, vector[None], torch.zeros(1, dtype=torch.bool))
    X, y = torch.tensor([[0.0], [3.0], [0.0], [3.0]]), torch.tensor([0, 0, 0, 1])
    best = torch.tensor([0.95, 0.95, 0.6, 0.6], dtype=torch.float64)
    counts = scoring.count(loss, trained, [Candidate(0, 0.2, {})], X, y, width=2, best_confidence=best)
    assert (counts.rejected[0], counts.wrong[0]) == (2, 1)
    assert (counts.false_rejects[0], counts.false_accepts[0]) == (1, 1)


def test_ties_go_to_the_first_of_the_grid():
    candidates = [Candidate(i, cost, {}) for i in range(3) for cost in (0.1, 0.2)]
    risks = np.array([0.3, 0.2, 0.1, 0.2, 0.1, 0.1])
    assert scoring.choose(candidates, risks, [0.1, 0.2]) == [2, 5]
