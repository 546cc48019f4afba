"""Reviewed rows flow back: weights, refusals, and what the correction is worth."""

import numpy as np
import pyarrow as pa
import pytest

from demur import RiskControl
from demur.columns import TableError
from demur.errors import InputError
from demur.tabular import fit_table, refit_table, review_weights
from demur.tabular.review_queue import _repetitions


def draw(rng, n_rows, shift=0.0):
    """Two classes which a straight line cannot part: near a = 0 it goes the other way."""
    a, b = rng.normal(0, 2, n_rows), rng.normal(shift, 1.5, n_rows)
    logit = np.where(np.abs(a) < 0.5, -2 * b, 2 * a + b)
    y = rng.uniform(size=n_rows) < 1 / (1 + np.exp(-logit))
    return pa.table({"a": a, "b": b, "y": np.where(y, "yes", "no")})


def risk(model, table):
    decision = model.decide(table)
    wrong = model.classes[decision.label] != np.array(table["y"].to_pylist())
    return float(np.where(decision.reject, 0.2, wrong).mean())


@pytest.fixture(scope="module")
def old():
    return draw(np.random.default_rng(0), 400)


@pytest.fixture(scope="module")
def model(old):
    return fit_table(old, "y", model="lr")


@pytest.fixture(scope="module")
def desk(model):
    """What reviewers have seen of a stream, and the rows that were declined."""
    rng = np.random.default_rng(1)
    stream = draw(rng, 1500, shift=1.0)
    declined = model.decide(stream).reject
    drawn = ~declined & (rng.uniform(size=1500) < 0.1)
    seen = stream.append_column("why", pa.array(np.where(declined, "declined", "audit")))
    return seen.filter(pa.array(declined | drawn))


def test_weights_stand_for_the_stream():
    declined, labelled = np.array([True] * 4 + [False] * 2), np.array([True, True, False, False, True, True])
    weights = review_weights(declined, labelled, audit=0.05)
    assert weights.tolist() == [2, 2, 0, 0, 20, 20]
    assert weights.sum() == 4 + 2 / 0.05  # declined rows, and about as many answered ones as there were
    with pytest.raises(InputError, match="above 0"):
        review_weights(declined, labelled, audit=0.0)


def test_weighted_means_of_reviewed_rows_are_those_of_the_stream():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        declined, wrong = rng.uniform(size=500) < 0.3, rng.uniform(size=500)
        seen = declined | (rng.uniform(size=500) < 0.2)
        values = np.where(declined, wrong + 1, wrong)
        weights = review_weights(declined[seen], np.ones(seen.sum(), dtype=bool), audit=0.2)
        found.append([np.sum(weights * values[seen]) / 500, values.mean()])
    estimate, truth = np.mean(found, axis=0)
    assert estimate == pytest.approx(truth, abs=0.01)


def test_repetitions_add_up_to_the_weights():
    rows = _repetitions(np.array([1.0, 0.5, 0.5, 2.25, 0.75]))
    assert len(rows) == 5
    assert np.bincount(rows, minlength=5)[[0, 3]].tolist() == [1, 2]


def test_the_new_model_records_its_rows(model, old, desk):
    found = refit_table(model, old, desk, audit=0.1)
    assert found.n_trained == 400
    assert found.n_declined + found.n_audited == desk.num_rows
    assert found.model.facts["refitted"]["audited"] > 0
    assert "reference" not in found.model.facts  # a monitor must not compare with rows of another time
    assert found.model.cost == model.cost


def test_rows_that_wait_for_a_label_and_new_classes(model, old, desk):
    labels = ["maybe" if k % 3 == 0 else None if k % 3 == 1 else text for k, text in enumerate(desk["y"].to_pylist())]
    waiting = desk.set_column(2, "y", pa.array(labels))
    not_drawn = desk.set_column(3, "why", pa.nulls(desk.num_rows, pa.string()))  # known for another reason
    found = refit_table(model, old, pa.concat_tables([waiting, not_drawn]), audit=0.1)
    assert set(found.model.classes) == {"maybe", "no", "yes"}
    assert found.n_declined + found.n_audited == sum(label is not None for label in labels)


def test_what_cannot_be_corrected_is_refused(model, old, desk):
    with pytest.raises(TableError, match="no answered row has a reviewer's label"):
        refit_table(model, old, desk.set_column(2, "y", pa.nulls(desk.num_rows, pa.string())))
    with pytest.raises(TableError, match="holds 'perhaps'"):
        refit_table(model, old, desk.set_column(3, "why", pa.array(["perhaps"] * desk.num_rows)))
    only_declined = desk.filter(pa.compute.equal(desk["why"], "declined"))
    with pytest.raises(TableError, match="review a random sample of the answers as well"):
        refit_table(model, old, only_declined)
    promised = fit_table(draw(np.random.default_rng(5), 1500), "y", model="lr", rule=RiskControl(0.3))
    with pytest.raises(InputError, match="that decides by a cost"):
        refit_table(promised, old, desk)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_corrected_model_is_better_than_one_that_takes_reviewed_rows_as_they_are(shift):
    """The naive one learns that doubtful rows are frequent, and gets worse than the model that it replaces."""
    risks = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        old = draw(rng, 600)
        model = fit_table(old, "y", model="lr")
        stream, test = draw(rng, 3000, shift), draw(rng, 20_000, shift)
        declined = model.decide(stream).reject
        reviewed = stream.filter(pa.array(declined | (rng.uniform(size=3000) < 0.1)))
        naive = fit_table(pa.concat_tables([old, reviewed]), "y", model="lr")
        corrected = refit_table(model, old, reviewed, audit=0.1).model
        risks.append([risk(one, test) for one in (naive, corrected)])
    better = np.array(risks)[:, :1] - np.array(risks)[:, 1:]
    assert (better.mean(axis=0) > 3 * better.std(axis=0, ddof=1) / np.sqrt(len(risks))).all()
