"""One clear error for each kind of wrong input."""

import pytest
import torch

from demur.losses import (
    AdditivePairwise,
    CrossEntropy,
    Margin,
    MultiplicativePairwise,
    NoClosedFormError,
    NoInverseLinkError,
    OneVsAll,
    available,
    get,
)
from demur.margins import Hinge, Logistic, Squared

Y = torch.tensor([0, 1])


@pytest.mark.parametrize("name", available())
def test_bad_costs(name):
    loss = get(name)
    scores, y = torch.zeros(2, loss.n_outputs(2)), Y
    for cost in (-0.1, 1.0, float("nan"), float("inf"), torch.tensor([0.1, 1.2])):
        with pytest.raises(ValueError, match=r"cost must be in \[0, 1\)"):
            loss(scores, y, cost)
        with pytest.raises(ValueError, match=r"cost must be in \[0, 1\)"):
            loss.decide(scores, cost)
    with pytest.raises(TypeError, match="cost must be a number"):
        loss.decide(scores, "cheap")
    with pytest.raises(TypeError, match="needs a cost"):
        loss.decide(scores, None)
    if loss.trained_for_cost:
        with pytest.raises(TypeError, match="needs a cost"):
            loss(scores, y)
    with pytest.warns(UserWarning, match="1/2 or more"):
        loss.decide(scores, 0.7)


@pytest.mark.parametrize("name", available())
def test_bad_scores_and_labels(name):
    loss = get(name)
    scores = torch.zeros(2, loss.n_outputs(2))
    with pytest.raises(ValueError, match="scores contain NaN"):
        loss.decide(scores * torch.nan, 0.2)
    with pytest.raises(TypeError, match="tensor of floats"):
        loss.decide(scores.long(), 0.2)
    with pytest.raises(TypeError, match="tensor of floats, got list"):
        loss.decide([[0.0, 1.0]], 0.2)
    with pytest.raises(ValueError, match="needs scores of shape"):
        loss.decide(torch.tensor(1.0), 0.2)
    with pytest.raises(ValueError, match="y must have shape"):
        loss(scores, torch.tensor([0, 1, 0]), 0.2)
    with pytest.raises(TypeError, match="integer class numbers"):
        loss(scores, torch.tensor([0.0, 1.0]), 0.2)
    for wrong in (-1, 99):
        with pytest.raises(ValueError, match=r"labels must be in 0 \.\.\. 1"):
            loss(scores, torch.tensor([0, wrong]), 0.2)


def test_wrong_number_of_outputs_for_a_binary_loss():
    with pytest.raises(ValueError, match="n_outputs = 1 for 2 classes"):
        get("mh").decide(torch.zeros(3, 2), 0.2)
    with pytest.raises(ValueError, match="two classes only, got 3"):
        get("mh").for_classes(3)
    with pytest.raises(ValueError, match="at least two classes"):
        get("ce").for_classes(1)


@pytest.mark.parametrize("name", [name for name in available() if not get(name).has_link])
def test_no_probabilities_without_a_link(name):
    with pytest.raises(NoInverseLinkError, match="no inverse link"):
        get(name).proba(torch.zeros(get(name).n_outputs(2)))


@pytest.mark.parametrize("name", [name for name in available() if get(name).trained_for_cost])
def test_no_loss_is_trained_for_a_cost_of_zero(name):
    with pytest.raises(ValueError, match="for a cost of 0; use a small positive cost"):
        get(name)(torch.zeros(2, get(name).n_outputs(2)), Y, 0.0)


@pytest.mark.parametrize("name", ["apc+log", "mpc+log", "pb+log"])
def test_bad_hyper_parameters(name):
    for field in ("alpha", "beta"):
        with pytest.raises(ValueError, match=rf"{field} must be in \(0, inf\), got"):
            get(name, **{field: -1.0})
        with pytest.raises(ValueError, match=rf"{field} must be in \(0, inf\), got"):
            get(name, **{field: torch.tensor([1.0, 0.0])})
    with pytest.raises(ValueError, match="'acc', 'rej' or 'mean', got 'both'"):
        get(name, beta="both")


@pytest.mark.parametrize(("name", "wrong"), [("ova+hin", 1.0), ("ova+hin", -1.0), ("cs+hin", 0.0), ("bep", 1.5)])
def test_bad_thresholds(name, wrong):
    with pytest.raises(ValueError, match=r"tau must be in \(-?[01], 1\), got"):
        get(name, tau=wrong)


def test_margins_without_a_link_are_refused_where_one_is_needed():
    with pytest.raises(ValueError, match="needs a phi with an inverse link"):
        OneVsAll(Hinge())
    with pytest.raises(ValueError, match="needs a phi with an inverse link"):
        Margin(Hinge())


@pytest.mark.parametrize("cls", [AdditivePairwise, MultiplicativePairwise])
def test_a_pair_of_margins_without_closed_form_says_what_to_do(cls):
    loss = cls(Logistic(), Squared())
    with pytest.raises(NoClosedFormError, match="give beta as a number"):
        loss(torch.zeros(2, 4), Y, 0.2)
    assert cls(Logistic(), Squared(), beta=2.0)(torch.zeros(2, 4), Y, 0.2).isfinite().all()


def test_cost_is_optional_where_it_is_not_used():
    assert CrossEntropy()(torch.zeros(2, 3), Y).shape == (2,)
