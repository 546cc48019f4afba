"""RejectClassifier: what users of scikit-learn expect, and good manners with bad input."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import RejectClassifier
from demur.estimators import AnswersNothingWarning
from demur.estimators.network_selection import fit_fold_networks, scaled_inputs
from demur.losses import CrossEntropy, FunctionLoss, available, get
from demur.metrics import zero_one_c_risk, zero_one_c_scorer
from demur.training import PeriodicEmbeddings

X, Y = load_iris(return_X_y=True)
QUICK = {
    "hidden_units": (50,),
    "epochs": 15,
    "learning_rate": 5e-3,
    "batch_size": 16,
    "n_members": 1,
    "calibration": None,
    "weight_decay": 1e-4,
    "random_state": 0,
    "device": "cpu",
}
"""A plain perceptron with nothing to choose: one network, trained once."""

GRID = {**QUICK, "weight_decay": None}
"""The same, with the weight decays of the paper to choose from."""


@pytest.fixture(scope="module")
def ce():
    return RejectClassifier(cost=0.1, **GRID).fit(X, Y)


BRIEF = {"epochs": 3, "n_members": 2, "random_state": 0}


def mixed_rows(n_rows=90):
    """Return a table with a column of each type and gaps, and labels that depend on two of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.lognormal(size=n_rows), "town": rng.choice(["A", "B", "C"], n_rows)})
    frame["member"], frame["since"] = rng.random(n_rows) < 0.5, pd.date_range("2024-01-01", periods=n_rows)
    frame["grade"] = pd.Categorical(rng.choice(["low", "high"], n_rows), ["low", "high"])
    labels = np.where(frame["town"] == "A", "yes", np.where(frame["income"] > 1, "no", "maybe"))
    frame.loc[::7, "income"], frame.loc[3::9, "town"] = np.nan, None
    return frame, labels


@pytest.fixture(scope="module")
def mixed():
    return RejectClassifier(**BRIEF).fit(*mixed_rows())


def test_a_table_of_any_columns_needs_no_encoding(mixed):
    frame, _ = mixed_rows()
    proba = mixed.predict_proba(frame)
    assert mixed.n_features_in_ == 5
    assert mixed.known_rows_ is not None
    for other in (pl.from_pandas(frame), frame[["grade"]].join(frame.drop(columns="grade"))[frame.columns]):
        np.testing.assert_allclose(mixed.predict_proba(other), proba, atol=1e-9)
    unknown = frame.head(3).assign(town="elsewhere")
    assert np.isfinite(mixed.predict_proba(unknown)).all()
    assert np.isfinite(mixed.predict_proba(frame.head(2).assign(town=None, income=np.nan))).all()
    with pytest.raises(ValueError, match="fitted on a table"):
        mixed.predict(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="column 'income' holds an infinite value"):
        mixed.predict(frame.head(2).assign(income=np.inf))
    copy = pickle.loads(pickle.dumps(mixed))
    np.testing.assert_array_equal(copy.predict_proba(frame), proba)


def test_large_numbers_in_the_training_rows_of_a_table_are_not_missing():
    frame, labels = mixed_rows()
    frame.loc[5, "income"] = -1e31
    model = RejectClassifier(**BRIEF).fit(frame, labels)
    assert model.encoding_.encode(model, frame).matrix[5, 0] == -1e30  # as in arrays


@pytest.mark.slow
def test_all_of_many_categories_tell_something():
    rng = np.random.default_rng(0)
    town = np.repeat(np.arange(150), 10)  # equally frequent, so that none is more important than another
    frame = pd.DataFrame({"town": [f"town {k}" for k in town], "noise": rng.normal(size=len(town))})
    labels = rng.integers(3, size=150)[town]
    train = np.arange(len(town)) % 10 < 7
    model = RejectClassifier(epochs=20, n_members=2, random_state=0).fit(frame[train], labels[train])
    assert (model.decide(frame[~train]).label == labels[~train]).mean() > 0.95


def test_codes_of_categories_are_told_by_a_parameter():
    frame, labels = mixed_rows()
    codes = frame[["income"]].assign(town=frame["town"].map({"A": 0, "B": 1, "C": 2})).to_numpy()
    coded = RejectClassifier(categorical_features=[1], **BRIEF).fit(codes, labels)
    turned = codes.copy()
    turned[:, 1] = 2 - turned[:, 1]  # the numbers of categories mean nothing
    again = RejectClassifier(categorical_features=[1], **BRIEF).fit(turned, labels)
    assert coded.networks_.mean.shape == again.networks_.mean.shape
    assert coded.score(codes, labels) > RejectClassifier(**BRIEF).fit(codes[:, :1], labels).score(codes[:, :1], labels)
    with pytest.raises(ValueError, match="codes from 0"):
        RejectClassifier(categorical_features=[0], **BRIEF).fit(codes, labels)


@pytest.mark.slow
def test_a_table_of_text_and_a_loss_without_a_link():
    frame, labels = mixed_rows(60)
    long = frame.assign(note=[f"a long text about {word} number {k} and so on" for k, word in enumerate(labels)])
    text = RejectClassifier(**BRIEF).fit(long, labels)
    assert text.encoding_.dense_text is not None
    assert np.isfinite(text.predict_proba(long)).all()
    plain = RejectClassifier("ova+hin", epochs=2, random_state=0, weight_decay=1e-4).fit(frame, labels)
    assert len(plain.predict(frame)) == 60


@pytest.mark.slow
def test_thresholds_of_skewed_numbers_are_found():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.lognormal(sigma=2, size=(600, 4)), columns=list("abcd")).assign(unit="x")
    frame.loc[::2, "unit"] = "y"
    y = (frame["a"] > 3) ^ ((frame["b"] < 0.5) & (frame["unit"] == "x"))
    model = RejectClassifier(random_state=0, epochs=24, n_members=2).fit(frame[:400], y[:400])
    assert np.isfinite(model.networks_.pieces.width[0]).any()
    assert not np.isfinite(model.networks_.pieces.width[1]).any()  # the second network sees none
    assert model.score(frame[400:], y[400:]) > -0.08


QUICKLY_TRIED = ("ce", "ova+hin", "apc+log")


@pytest.mark.parametrize(
    "loss", [pytest.param(name, marks=() if name in QUICKLY_TRIED else pytest.mark.slow) for name in available(3)]
)
def test_every_loss_learns_iris(loss):
    model = RejectClassifier(
        loss, cost=0.3, epochs=16 if get(loss).has_link else 60, batch_size=16, n_members=1, random_state=0
    )
    model.fit(X, Y)
    risk = zero_one_c_risk(Y, model.predict(X), cost=0.3)
    assert risk < 0.15
    assert model.score(X, Y) == pytest.approx(-risk)


@pytest.mark.slow
@pytest.mark.parametrize("loss", sorted(set(available()) - set(available(n_classes=3))))
def test_binary_losses_learn_two_classes_and_refuse_three(loss):
    two = Y < 2
    model = RejectClassifier(loss, cost=0.3, epochs=100, random_state=0).fit(X[two], Y[two])
    assert -model.score(X[two], Y[two]) < 0.1
    with pytest.raises(ValueError, match="two classes only, got 3"):
        RejectClassifier(loss, **QUICK).fit(X, Y)


def test_cost_changes_without_refit_where_the_loss_allows(ce):
    rejected = [ce.decide(X, cost=c).reject.mean() for c in (0.01, 0.1, 0.4)]
    assert rejected[0] > rejected[1] > rejected[2]
    other = clone(ce).fit(X, Y).set_params(cost=0.01)
    assert (other.predict(X) == other.reject_label_).mean() == rejected[0]
    per_row = np.where(np.arange(len(X)) < 75, 0.01, 0.4)
    mixed = ce.decide(X, cost=per_row).reject
    assert (mixed[:75] == ce.decide(X, cost=0.01).reject[:75]).all()
    assert (mixed[75:] == ce.decide(X, cost=0.4).reject[75:]).all()


@pytest.mark.parametrize("loss", ["ova+hin", "apc+log"])
def test_cost_trained_losses_refuse_another_cost(loss):
    model = RejectClassifier(loss, cost=0.3, **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match=r"trained for cost 0\.3 .* refit"):
        model.decide(X, cost=0.1)
    with pytest.raises(ValueError, match="refit"):
        model.set_params(cost=0.2).predict(X)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'") as caught:
        model.predict_proba(X)
    assert "no inverse link" in str(caught.value.__cause__)


def test_the_grid_is_the_papers(ce):
    assert [(c.weight_decay, c.failed) for c in ce.candidates_] == [(1e-7, False), (1e-4, False), (1e-1, False)]
    apc = RejectClassifier("apc+log", **{**GRID, "epochs": 2}).fit(X, Y)
    assert len(apc.candidates_) == 9
    assert {c.loss.beta for c in apc.candidates_} == {"acc", "rej", "mean"}
    hinge = RejectClassifier("ova+hin", **{**GRID, "epochs": 2}).fit(X, Y)
    assert {c.loss.tau for c in hinge.candidates_} == {-0.95, -0.5, 0.0, 0.5, 0.95}
    fixed = RejectClassifier(get("apc+log", beta=3.0), **{**QUICK, "weight_decay": 0.0, "epochs": 2}).fit(X, Y)
    assert [c.loss.beta for c in fixed.candidates_] == [3.0]


def test_the_candidate_of_least_validation_risk_is_kept():
    """The first of these weight decays leaves nothing of the network."""
    model = RejectClassifier(**{**QUICK, "weight_decay": (10.0, 1e-4)}).fit(X, Y)
    assert model.best_candidate_.weight_decay == 1e-4
    assert model.best_candidate_.risk == min(candidate.risk for candidate in model.candidates_)
    assert model.candidates_[0].risk > model.candidates_[1].risk


def test_a_threshold_is_chosen_on_rows_that_were_not_trained_on():
    data, labels = make_classification(1000, n_features=20, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    model = RejectClassifier("ova+hin", weight_decay=1e-4, epochs=30, random_state=0).fit(data[:600], labels[:600])
    assert len(model.candidates_) == 5
    assert abs(-model.score(data[600:], labels[600:]) - model.best_candidate_.risk) < 0.08


def test_two_classes_need_one_beta():
    two = Y < 2
    model = RejectClassifier("apc+log", **{**GRID, "epochs": 2}).fit(X[two], Y[two])
    assert len(model.candidates_) == 3


def test_discrete_features_keep_their_frequencies():
    """Many equal rows with different labels: the classes' shares among them are what is to be learnt."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 2, size=(8000, 3)).astype(float)
    truth = 0.15 + 0.7 * cells @ [0.6, 0.3, 0.1]
    labels = (rng.random(8000) < truth).astype(int)
    model = RejectClassifier(epochs=3, n_members=2, random_state=0).fit(cells, labels)
    grid = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T.astype(float)
    assert model.predict_proba(grid)[:, 1] == pytest.approx(0.15 + 0.7 * grid @ [0.6, 0.3, 0.1], abs=0.08)


def test_members_are_averaged():
    alone = RejectClassifier(**QUICK).fit(X, Y)
    three = RejectClassifier(**{**QUICK, "n_members": 3}).fit(X, Y)
    assert len(three.networks_.networks) == 3
    singles = [
        torch.softmax(three.networks_.networks.take([m]).scores(torch.from_numpy(
            ((X - three.networks_.mean) / three.networks_.scale).astype(np.float32)))[0], -1).numpy()
        for m in range(3)
    ]  # fmt: skip
    assert three.predict_proba(X) == pytest.approx(np.mean(singles, 0), abs=1e-6)
    assert alone.predict_proba(X) == pytest.approx(singles[0], abs=1e-6)
    with pytest.raises(ValueError, match="n_members > 1 needs probabilities"):
        RejectClassifier("ova+hin", **{**QUICK, "n_members": 2}).fit(X, Y)


def test_temperature():
    blobs, labels = make_blobs(600, centers=3, cluster_std=4.0, random_state=0)
    plain = RejectClassifier(**QUICK).fit(blobs[:100], labels[:100])
    scaled = RejectClassifier(**{**QUICK, "calibration": "temperature"}).fit(blobs, labels)
    assert plain.networks_.temperature is None
    split = scaled.networks_.temperature.temperature_
    assert split != 1
    with pytest.raises(ValueError, match="'temperature' or None, got 'platt'"):
        RejectClassifier(**{**QUICK, "calibration": "platt"}).fit(X, Y)


def test_scaling_is_part_of_the_model_or_the_users():
    plain = -RejectClassifier(**QUICK).fit(X, Y).score(X, Y)
    for far in (X * 1e4 + 1e6, X * 1e-3 + 1e6, X * 1e-30, X * 1e30):
        assert -RejectClassifier(**QUICK).fit(far, Y).score(far, Y) == pytest.approx(plain, abs=0.03)
    with pytest.raises(ValueError, match="too large to be standardised"):
        RejectClassifier(**QUICK).fit(X * 1e200, Y)
    far = X * 1e4 + 1e6
    constant = np.c_[X, np.full(len(X), 3.7)]
    assert -RejectClassifier(**QUICK).fit(constant, Y).score(constant, Y) < 0.15
    own = make_pipeline(StandardScaler(), RejectClassifier(standardize=False, **QUICK)).fit(far, Y)
    assert -own.score(far, Y) < 0.15


def test_row_order_does_not_matter(ce):
    order = np.random.default_rng(0).permutation(len(X))
    assert (clone(ce).fit(X[order], Y[order]).predict_proba(X) == ce.predict_proba(X)).all()


@pytest.mark.parametrize("options", [BRIEF, QUICK])
def test_single_and_double_precision_rows_of_one_value_give_one_model(options):
    single = X.astype(np.float32)
    models = [RejectClassifier(**options).fit(rows, Y) for rows in (single, single.astype(np.float64))]
    proba = [model.predict_proba(rows) for model in models for rows in (single, single.astype(np.float64))]
    assert all(np.allclose(one, proba[0], atol=1e-6) for one in proba)


def test_zero_weights_are_no_rows(ce):
    weight = np.ones(len(X))
    weight[::3] = 0
    kept = weight > 0
    assert (
        clone(ce).fit(X, Y, sample_weight=weight).predict_proba(X) == clone(ce).fit(X[kept], Y[kept]).predict_proba(X)
    ).all()
    with pytest.raises(ValueError, match="only one class has rows with a positive weight"):
        clone(ce).fit(X, Y, sample_weight=(Y == 1).astype(float))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        clone(ce).fit(X, Y, sample_weight=-np.ones(len(X)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_names(frame):
    names = ["a", "b", "c", "d"]
    table = frame(dict(zip(names, X.T, strict=True)))
    model = RejectClassifier(**QUICK).fit(table, Y)
    assert model.feature_names_in_.tolist() == names
    assert (model.predict(table) == RejectClassifier(**QUICK).fit(X, Y).predict(X)).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame(dict(zip(["a", "b", "c", "other"], X.T, strict=True))))


@pytest.mark.parametrize("column", [pd.to_timedelta(X[:, 2], unit="h"), list(X[:, 2:])], ids=["durations", "vectors"])
def test_frames_with_durations_and_vectors(column):
    table = pd.DataFrame({"width": X[:, 1], "own": column})
    model = RejectClassifier(**QUICK).fit(table, Y)
    assert (model.predict_proba(table).argmax(axis=1) == Y).mean() > 0.9


def test_costs_per_row_have_one_shape(ce):
    for wrong in (np.full((150, 1), 0.1), np.full(149, 0.1)):
        with pytest.raises(ValueError, match=r"one number or one per row, of shape \(150,\)"):
            ce.decide(X, cost=wrong)
    hinge = RejectClassifier("ova+hin", cost=0.1, **QUICK).fit(X, Y)
    assert (hinge.decide(X, cost=np.full(150, 0.1)).reject == hinge.decide(X).reject).all()


def test_read_only_rows(ce):
    locked = X.copy()
    locked.setflags(write=False)
    assert (ce.predict(locked) == ce.predict(X)).all()


@pytest.mark.parametrize("loss", ["ova+sqhin", "ce", "ova+log"])
def test_decisions_are_the_losss_own(loss):
    model = RejectClassifier(loss, novelty=None, **QUICK).fit(X, Y)
    far = np.r_[X, 20 * X - 80]
    scaled = torch.from_numpy(((far - model.networks_.mean) / model.networks_.scale).astype(np.float32))
    own = model.loss_.decide(model.networks_.networks.scores(scaled)[0], 0.2).numpy()
    found = model.decide(far)
    assert (found.label == own.label).all()
    assert (found.reject == own.reject).all()


@pytest.mark.parametrize(
    ("labels", "marker"),
    [
        (np.array(["setosa", "versicolor", "virginica"]), "reject"),
        (np.array([1.0, 2.0, 7.0]), -1),
        (np.array([10, 20, 30]), -1),
        (np.array([-1, 0, 1]), -2),
        (np.array(["a", "b", "c"], dtype=object), "reject"),
    ],
)
def test_labels_of_every_kind(labels, marker):
    model = RejectClassifier(cost=0.02, **QUICK).fit(X, labels[Y])
    assert model.reject_label_ == marker
    predicted = model.predict(X)
    assert set(predicted.tolist()) <= {*labels.tolist(), marker}
    assert marker in predicted.tolist()
    assert model.score(X, labels[Y]) <= 0


def test_reject_labels():
    model = RejectClassifier(cost=0.02, reject_label=99, **QUICK).fit(X, Y)
    assert 99 in model.predict(X)
    names = np.array(["a", "b", "c"])[Y]
    mixed = RejectClassifier(cost=0.02, reject_label=-1, **QUICK).fit(X, names).predict(X)
    assert -1 in mixed.tolist()
    with pytest.raises(ValueError, match="reject_label 2 is also a class"):
        RejectClassifier(reject_label=2, **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="classes is called 'reject'"):
        RejectClassifier(**QUICK).fit(X, np.where(Y == 0, "reject", "other"))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"loss": "crossentropy"}, ValueError, "unknown loss 'crossentropy'"),
        ({"hidden_units": (True,)}, ValueError, "hidden_units must be a whole number"),
        ({"hidden_units": 2.5}, ValueError, "hidden_units must be a whole number"),
        ({"weight_decay": "1e-4"}, ValueError, "weight_decay must be one or more numbers"),
        ({"learning_rate": "fast"}, TypeError, "learning_rate must be a number, got 'fast'"),
        ({"validation_fraction": None}, TypeError, "validation_fraction must be a number"),
        ({"cost": np.array([0.1, 0.2])}, ValueError, "cost must be one number to fit"),
        ({"loss": "apc+exp", "cost": 0.0}, ValueError, "for a cost of 0"),
        ({"loss": 3}, TypeError, "a registered name, a Loss, or a function .* got int"),
        ({"device": "tpu"}, ValueError, "unknown device 'tpu'"),
        ({"device": "cuda:99"}, ValueError, "no CUDA GPU|99"),
        ({"cost": 1.2}, ValueError, r"cost must be in \[0, 1\), got 1\.2"),
        ({"epochs": 0}, ValueError, "epochs must be a whole number of at least 1, got 0"),
        ({"batch_size": 2.5}, ValueError, r"batch_size must be a whole number of at least 1, got 2\.5"),
        ({"learning_rate": -1.0}, ValueError, r"learning_rate must lie between 0 and inf, got -1\.0"),
        ({"validation_fraction": 1.0}, ValueError, r"validation_fraction must lie between 0 and 1, got 1\.0"),
        ({"hidden_units": (50, 0)}, ValueError, "hidden_units must be a whole number of at least 1, got 0"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay must be one or more numbers"),
        ({"weight_decay": ()}, ValueError, "weight_decay must be one or more numbers"),
        ({"n_members": 0}, ValueError, "n_members must be a whole number"),
        ({"learning_rate": 1e30, "hidden_units": (5, 5)}, ValueError, "all networks diverged.*Lower learning_rate"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        RejectClassifier(**{**QUICK, **parameters}).fit(X, Y)


def test_infinite_values(ce):
    broken = X.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        RejectClassifier(**QUICK).fit(broken, Y)
    with pytest.raises(ValueError, match="infinity"):
        ce.predict(broken)


@pytest.mark.parametrize("options", [{"hidden_units": (20,)}, {}], ids=["plain", "default"])
def test_that_a_value_is_missing_may_say_which_class_it_is(options):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 2))
    labels = rng.integers(2, size=300)
    data[labels == 1, 0] = np.nan
    model = RejectClassifier(**options, epochs=20, batch_size=16, n_members=2, random_state=0).fit(data, labels)
    assert (model.predict(data) == labels).mean() > 0.98
    assert model.networks_.indicators.tolist() == [0]
    assert np.isfinite(model.predict_proba(np.array([[0.0, np.nan]]))).all()  # never missing in training


def test_class_weights_are_weights_of_rows():
    sparse_first = np.where(Y == 0, 3.0, 1.0)
    by_class = RejectClassifier(class_weight={0: 3.0}, **QUICK).fit(X, Y)
    by_row = RejectClassifier(**QUICK).fit(X, Y, sample_weight=sparse_first)
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


def test_one_class_only():
    with pytest.raises(ValueError, match="only one class"):
        RejectClassifier(**QUICK).fit(X, np.zeros(len(X)))


def test_sparse_matrices_are_filled_up_where_they_can_be(ce, monkeypatch):
    model = clone(ce).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_array_equal(model.predict_proba(sparse.csr_matrix(X)), ce.predict_proba(X))
    monkeypatch.setattr("demur.estimators.base._MOST_DENSE", 100)
    with pytest.raises(ValueError, match="150 x 4 is too large to be filled up"):
        clone(ce).fit(sparse.csr_matrix(X), Y)


# The default: an ensemble of networks for tables, one per fold


@pytest.fixture(scope="module")
def default():
    return RejectClassifier(cost=0.1, epochs=16, random_state=0).fit(X, Y)


def test_the_default_averages_five_networks_of_five_folds_and_calibrates_them(default):
    assert -default.score(X, Y) < 0.06
    networks = default.networks_
    assert len(networks.networks) == 5
    assert networks.mean.shape == (5, 4)  # each learnt the scale of its own rows
    assert len(np.unique(networks.mean[:, 2])) > 1
    assert networks.temperature.temperature_ > 0
    assert default.loss_curve_.shape == default.validation_curve_.shape == (5, 16)
    assert np.isfinite(default.validation_curve_).all()
    assert default.best_candidate_.log_loss < 0.2


def test_the_default_averages_scores(default):
    """Networks that are each calibrated are too timid together where probabilities are averaged."""
    networks = default.networks_
    scores = [
        networks.networks.take([m]).scores(torch.from_numpy(scaled_inputs(X, mean, scale, networks.clip)))[0]
        for m, (mean, scale) in enumerate(zip(networks.mean, networks.scale, strict=True))
    ]
    mean_score = torch.stack(scores).double().mean(0)
    expected = torch.softmax(mean_score / networks.temperature.temperature_, -1).numpy()
    np.testing.assert_allclose(default.predict_proba(X), expected, atol=1e-5)
    of_proba = replace(networks, mean_of="proba", temperature=None).proba(X)
    of_scores = replace(networks, temperature=None).proba(X)
    assert of_proba.max(1).mean() < of_scores.max(1).mean()


def test_the_default_is_a_function_of_the_rows_and_not_of_their_order(default):
    order = np.random.default_rng(0).permutation(len(X))
    again = clone(default).fit(X[order], Y[order])
    np.testing.assert_array_equal(again.predict_proba(X), default.predict_proba(X))
    pieces = np.concatenate([default.predict_proba(X[:7]), default.predict_proba(X[7:])])
    np.testing.assert_allclose(pieces, default.predict_proba(X), rtol=0, atol=1e-6)


def test_patience_and_embeddings_are_for_the_default_networks():
    options = {"epochs": 6, "n_members": 2, "random_state": 0}
    model = RejectClassifier(patience=1, embeddings=PeriodicEmbeddings(4, 2), **options).fit(X, Y)
    assert model.networks_.networks.architecture.embeddings == PeriodicEmbeddings(4, 2)
    trained = np.isfinite(model.validation_curve_).sum(1)
    np.testing.assert_array_equal(trained, np.minimum(np.nanargmin(model.validation_curve_, 1) + 2, 6))
    for own in ({"patience": 3}, {"embeddings": PeriodicEmbeddings()}):
        with pytest.raises(ValueError, match="is for the default networks"):
            RejectClassifier(**QUICK, **own).fit(X, Y)


def test_losses_with_a_link_are_chosen_by_log_loss():
    """Where a wrong answer costs little more than asking, the risk alone could prefer a network that knows nothing."""
    data, labels = make_classification(300, 6, n_informative=4, n_classes=3, flip_y=0.5, random_state=0)
    model = RejectClassifier(cost=0.1, weight_decay=(3.0, 1e-3), hidden_units=8, epochs=30, random_state=0)
    model.fit(data, labels)
    assert model.best_candidate_.log_loss == min(candidate.log_loss for candidate in model.candidates_)
    assert model.best_candidate_.weight_decay == 1e-3


def test_the_chosen_networks_are_trained_on_all_rows():
    """A class that is held out entirely could not be told otherwise; the scale shows which rows were seen."""
    model = RejectClassifier(**{**GRID, "epochs": 2}).fit(X, Y)
    np.testing.assert_allclose(model.networks_.mean, X.mean(0))


def test_networks_that_answer_nothing_warn():
    noise = np.random.default_rng(0)
    with pytest.warns(AnswersNothingWarning, match="decline every held-out row at the cost 0.1"):
        RejectClassifier(**{**GRID, "epochs": 5}, cost=0.1).fit(
            noise.normal(size=(200, 2)), noise.integers(4, size=200)
        )


def test_groups_stay_on_one_side_of_every_fold(monkeypatch):
    seen = []

    def look(data, *arguments):
        X = data.rows.X
        seen.extend((set(X[train, 0]), set(X[test, 0])) for train, test in data.parts)
        return fit_fold_networks(data, *arguments)

    monkeypatch.setattr("demur.estimators.reject_classifier.fit_fold_networks", look)
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 5)
    data = np.c_[group, rng.normal(size=100)].astype(float)
    RejectClassifier(epochs=1, random_state=0).fit(data, rng.integers(2, size=100), groups=group)
    assert len(seen) == 5
    assert all(not train & test for train, test in seen)


def test_very_few_rows():
    model = RejectClassifier(**QUICK).fit(X[[0, 60, 120]], [0, 1, 2])  # each class once, fewer than a batch
    assert model.predict_proba(X).shape == (150, 3)
    rare = np.r_[Y, 3]
    single = RejectClassifier(**QUICK).fit(np.r_[X, [[9.0, 9, 9, 9]]], rare)  # a class with a single row
    assert single.classes_.tolist() == [0, 1, 2, 3]


def test_a_loss_object_and_a_module():
    def deep(n_features, n_outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 12), torch.nn.GELU(), torch.nn.Linear(12, n_outputs))

    model = RejectClassifier(CrossEntropy(), module=deep, **{**QUICK, "epochs": 25}).fit(X, Y)
    assert -model.score(X, Y) < 0.15
    with pytest.raises(TypeError, match=r"a function of .* already trained goes into TorchClassifier"):
        RejectClassifier(module=torch.nn.Linear(4, 3)).fit(X, Y)


def test_the_cost_of_a_function_that_does_not_take_it_may_change():
    loss = FunctionLoss(torch.nn.CrossEntropyLoss(reduction="none"))
    model = RejectClassifier(loss, **QUICK).fit(X, Y)
    assert model.cost_adjustable
    assert np.allclose(model.predict_proba(X), RejectClassifier("ce", **QUICK).fit(X, Y).predict_proba(X), atol=1e-5)
    assert model.decide(X, cost=0.01).reject.sum() > model.decide(X, cost=0.4).reject.sum()
    with pytest.raises(ValueError, match="CrossEntropyLoss must return one loss per row"):
        RejectClassifier(FunctionLoss(torch.nn.CrossEntropyLoss()), **QUICK).fit(X, Y)


def test_pickles_clones_searches_and_cross_validates(ce):
    again = pickle.loads(pickle.dumps(ce))
    assert (again.predict(X) == ce.predict(X)).all()
    scores = cross_val_score(RejectClassifier(**QUICK), X, Y, cv=3, scoring=zero_one_c_scorer(0.2))
    assert (scores > -0.2).all()
    search = GridSearchCV(
        RejectClassifier(**QUICK), {"hidden_units": [(5,), (20,)]}, cv=2, scoring=zero_one_c_scorer(0.2)
    )
    assert search.fit(X, Y).best_score_ > -0.2


def test_a_row_is_decided_the_same_in_any_company(ce):
    whole = ce.predict_proba(X)
    for rows in ([0], [3, 77], range(100)):
        np.testing.assert_allclose(ce.predict_proba(X[list(rows)]), whole[list(rows)], atol=1e-6)
    many = np.tile(X, (60, 1))
    np.testing.assert_allclose(ce.predict_proba(many), np.tile(whole, (60, 1)), atol=1e-6)


def test_hidden_units_and_weight_decay_may_be_numbers():
    model = RejectClassifier(**{**QUICK, "hidden_units": np.int64(7), "weight_decay": np.array(1e-4), "epochs": 2}).fit(
        X, Y
    )
    assert model.networks_.networks.architecture.sizes == (4, 7, 3)
