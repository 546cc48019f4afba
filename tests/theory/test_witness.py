"""The least risk with a decision is found from float64 alone, and is never below the least risk of all."""

import numpy as np
import pytest
import torch

from demur.losses import available, get
from demur.losses.pairwise import PairwiseLoss
from demur.theory import minimise_pointwise_risk, pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.examined_loss import examine
from demur.theory.witness import Region

PAIRWISE = [get(name) for name in available() if isinstance(get(name), PairwiseLoss)]


@pytest.mark.parametrize("loss", PAIRWISE, ids=str)
def test_the_best_scores_that_answer_are_not_better_than_the_minimiser(loss):
    eta = np.array([0.9, 0.1]) if loss.binary_only else np.array([0.9, 0.05, 0.05])
    subject = examine(loss, as_target(0.2, len(eta)))
    target = torch.from_numpy(eta)
    scores = minimise_pointwise_risk(loss, target[None], 0.2)
    least = float(pointwise_risk(loss, scores[0], target, 0.2))
    found = Region(subject, target, 0, scores[0]).best(scores)
    assert int(subject.decide(found.scores[None])[0]) in (0, -1)  # -1 on the edge of the region
    assert found.risk * subject.scale.unit + subject.scale.offset >= least - 1e-9
