"""Files of what another program says of each class: what the numbers are, which class they are about."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import demur
from demur import Coverage, RiskControl
from demur.columns import TableError
from demur.deploy.onnx import compare_onnx, onnx_model
from demur.errors import InputError
from demur.estimators import PrecomputedProbabilities
from demur.estimators.precomputed_probabilities import PROBA_KINDS, find_kind
from demur.tabular import evaluate_table, fit_proba
from demur.tabular.external_models import class_columns

CLASSES = np.array(["billing", "other", "refund"])


def said(n_rows=600, seed=0, scale=2.5):
    """Probabilities that are too sure by a factor of ``scale`` in their logits, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.5, size=(n_rows, 3))
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(3, p=row) for row in proba])
    sharp = np.exp(scale * logits)
    return sharp / sharp.sum(axis=1, keepdims=True), CLASSES[y]


PROBA, Y = said()

AS = {
    "probabilities": PROBA,
    "percentages": 100 * PROBA,
    "log-probabilities": np.log(PROBA) - 0.1,
    "logits": np.log(PROBA) + 40,
    "votes": np.random.default_rng(0).multinomial(9, PROBA),
}
"""The same rows in all kinds; votes are drawn from them."""


def csv(values, labels=Y, names=CLASSES, **more):
    frame = pd.DataFrame(values, columns=list(names)).assign(**more, y=labels)
    return io.BytesIO(frame.to_csv(index=False).encode())


@pytest.mark.parametrize("kind", AS)
def test_each_kind_is_known_by_its_numbers(kind):
    assert find_kind(AS[kind].astype(float)) == kind
    assert set(AS) == set(PROBA_KINDS)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[1, 0], [0, 1]], "probabilities"),
        ([[1, 1], [0, 1], [1, 1]], "votes"),
        ([[90, 10], [55, 45]], "percentages"),
        ([[90, 11], [55, 40]], "votes"),
        ([[0.5, 3.5], [2.25, 0.0]], "logits"),
        ([[-0.5, -0.1], [-0.2, -0.3]], "logits"),
        ([[-0.5, -1.2], [np.nan, -0.3]], "log-probabilities"),
        ([[0.33, 0.33, 0.33], [0.9, 0.05, 0.05]], "probabilities"),
        ([[1.0, -1e-17], [0.5, 0.5]], "probabilities"),
        ([[0.4, 0.6], [0.5, 0.5], [1.2, 0.3]], "probabilities"),
        ([[np.nan, 1.0], [0.3, 0.7]], "probabilities"),
    ],
)
def test_kinds_of_few_rows(rows, kind):
    assert find_kind(np.array(rows, dtype=float)) == kind


def test_scores_that_are_no_probabilities_are_not_guessed():
    with pytest.raises(InputError, match="do not sum to 1"):
        find_kind(np.random.default_rng(0).random((50, 4)))


@pytest.mark.parametrize("kind", [kind for kind in AS if kind != "votes"])
def test_kinds_that_say_the_same_give_the_same_probabilities(kind):
    np.testing.assert_allclose(PrecomputedProbabilities(CLASSES, kind).predict_proba(AS[kind]), PROBA, atol=1e-12)


def test_gaps_by_hand():
    def proba(kind, *row):
        return PrecomputedProbabilities(["a", "b", "c"], kind).predict_proba([row])[0]

    gap = np.nan
    np.testing.assert_allclose(proba("probabilities", 0.75, gap, 0.25), [0.75, 0, 0.25])
    np.testing.assert_allclose(proba("votes", 2, gap, 0), [(2 + 1 / 3) / 3, 1 / 9, 1 / 9])
    # 0.2 is left for the two that are not listed
    np.testing.assert_allclose(proba("log-probabilities", np.log(0.8), gap, gap), [0.8, 0.1, 0.1])
    # 0.5 is left, but the class would have been listed before the one with 0.1
    np.testing.assert_allclose(proba("log-probabilities", np.log(0.4), np.log(0.1), gap), np.array([4, 1, 1]) / 6)
    with pytest.raises(InputError, match="row 1 lacks a logit"):
        proba("logits", 1.0, gap, 0.0)
    for kind in AS:
        with pytest.raises(InputError, match="row 1 holds no number"):
            proba(kind, gap, gap, gap)


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=5))
def test_votes_are_probabilities_that_keep_their_order(rows):
    votes = np.array(rows, dtype=float)
    proba = PrecomputedProbabilities(CLASSES, "votes").predict_proba(votes)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (proba > 0).all()
    assert (np.sign(np.diff(proba, axis=1).round(12)) == np.sign(np.diff(votes, axis=1))).all()


@pytest.fixture(scope="module", params=AS)
def fitted(request):
    return request.param, fit_proba(csv(AS[request.param]), "y", cost=0.3)


def test_calibration_corrects_overconfidence(fitted):
    kind, found = fitted
    assert found.model.facts["proba_kind"] == kind
    assert found.held_out.num_rows == 120
    assert found.notes[0].startswith(f"the numbers are read as {kind} (")
    temperature = found.model.facts["temperature"]
    if kind != "votes":
        assert abs(temperature - 2.5) < 0.5
        same = fit_proba(csv(PROBA), "y", cost=0.3).model
        np.testing.assert_allclose(
            found.model.predict_proba(pa.table(dict(zip(CLASSES, AS[kind].T, strict=True)))),
            same.predict_proba(pa.table(dict(zip(CLASSES, PROBA.T, strict=True)))),
            atol=1e-3,
        )


def test_class_biases_of_logits_are_learned():
    """The outputs favour one class, which no temperature undoes."""
    proba, y = said(2000, scale=1.0)
    tilted = 2 * np.log(proba) + [3.0, 0.0, 0.0]
    found = {
        calibration: fit_proba(csv(tilted, y), "y", cost=0.3, kind="logits", calibration=calibration).model
        for calibration in ("auto", "temperature")
    }
    table = pa.table(dict(zip(CLASSES, tilted.T, strict=True)))
    error = {name: np.abs(model.predict_proba(table) - proba).mean() for name, model in found.items()}
    assert error["auto"] < 0.02 < 0.1 < error["temperature"]
    assert found["auto"].facts["temperature"] == pytest.approx(2, rel=0.1)
    rows = pd.DataFrame(tilted[:90], columns=CLASSES)
    assert compare_onnx(found["auto"], onnx_model(found["auto"]), rows).decisions_agree


def test_the_model_is_one_like_any_other(fitted, tmp_path):
    kind, found = fitted
    demur.save(found.model, tmp_path / "model")
    again = demur.load(tmp_path / "model")
    rows = pd.DataFrame(AS[kind][:90], columns=CLASSES).astype(float)
    if kind != "logits":
        rows = rows.mask(rows.rank(axis=1) == 1) if kind in ("log-probabilities", "votes") else rows
    assert again.answers(rows, proba=True).equals(found.model.answers(rows, proba=True))
    assert again.answers(rows[3:4]).equals(again.answers(rows).slice(3, 1))
    agreement = compare_onnx(again, onnx_model(again), rows)
    assert agreement.decisions_agree
    assert agreement.proba < 1e-12
    judged = evaluate_table(again, found.held_out)
    assert judged.n_rows == 120
    assert judged.n_unknown == 0


def test_the_order_of_columns_and_other_columns_do_not_matter():
    plain = fit_proba(csv(PROBA), "y").model
    turned = fit_proba(csv(PROBA[:, ::-1], names=CLASSES[::-1], ticket=[f"T{k}" for k in range(len(Y))]), "y").model
    assert turned.schema.names == plain.schema.names == tuple(CLASSES)
    assert turned.schema.set_aside == {"ticket": "it is not named like a class"}
    rows = pd.DataFrame(PROBA[:20], columns=CLASSES)
    assert turned.answers(rows[list(CLASSES[::-1])]).equals(plain.answers(rows))


def test_a_rule_counts_rows_and_not_different_rows():
    votes = fit_proba(csv(AS["votes"]), "y", rule=Coverage(0.6), holdout=0)
    assert votes.model.facts["rows_for_the_rule"] == 480
    promised = fit_proba(csv(*said(3000, 1)), "y", rule=RiskControl(0.25), holdout=0)
    assert "2,400" in promised.model.explain()


@pytest.mark.parametrize(
    ("labels", "names", "written"),
    [
        ([0, 1], ["0", "1"], [0, 1]),
        ([0, 1], ["0.0", "1.0"], [0, 1]),
        ([False, True], ["False", "True"], [False, True]),
        (["a", "b"], ["logprob_a", "logprob_b"], ["a", "b"]),
        (["a", "b"], ["a (p)", "b (p)"], ["a", "b"]),
        (["a", "ab"], ["p_a", "p_ab"], ["a", "ab"]),
        (["reject", "proba:"], ["reject", "proba:"], ["proba:", "reject"]),
    ],
)
def test_names_of_columns(labels, names, written):
    proba = PROBA[:60, :2] / PROBA[:60, :2].sum(axis=1, keepdims=True)
    y = np.array(labels, dtype=object)[np.arange(60) % 2]
    found = fit_proba(csv(proba, y, names), "y", cost=0.49).model
    assert set(found.schema.names) == set(names)
    choices = found.answers(pd.DataFrame(proba, columns=names))["first_choice"].to_pylist()
    assert sorted(set(choices), key=str) == sorted(written, key=str)


def test_a_class_without_rows_stays_a_class():
    two = np.where(Y == "refund", "other", Y)
    found = fit_proba(csv(PROBA, two), "y", keep=["refund"])
    assert found.model.classes.tolist() == CLASSES.tolist()
    with pytest.raises(TableError, match="do not sum to 1"):
        fit_proba(csv(PROBA, two), "y")
    prefixed = csv(PROBA, two, [f"p_{name}" for name in CLASSES])
    assert fit_proba(prefixed, "y").model.classes.tolist() == CLASSES.tolist()


def test_an_identifier_is_no_class():
    for kind in ("probabilities", "votes"):
        numbered = csv(AS[kind], id=range(len(Y)))
        assert fit_proba(numbered, "y").model.schema.set_aside == {"id": "it is not named like a class"}
    found = fit_proba(csv(AS["votes"], id=range(len(Y))), "y", drop=["id"])
    assert found.model.schema.set_aside == {"id": "it was left out on request"}


WRONG = PROBA.copy()
WRONG[[7, 11], 0] += 0.2


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (lambda: csv(WRONG), {}, r"row 8 sums to 1\.2, but probabilities must sum to 1 \(one of 2 such rows\)"),
        (lambda: csv(PROBA[:, :2], names=CLASSES[:2]), {}, "there is no column for 'refund', which 'y' holds"),
        (lambda: csv(PROBA, names=["p", "q", "r"]), {}, "there is no column for 'billing', 'other', 'refund'"),
        (lambda: csv(PROBA), {"kind": "odds"}, "there is no kind 'odds' of numbers; choose one of probabilities"),
        (lambda: csv(PROBA), {"keep": ["refunds"]}, "there is no column 'refunds', did you mean 'refund'"),
        (lambda: csv(np.full(PROBA.shape, "x")), {}, "of the class 'billing' holds no numbers"),
        (lambda: csv(np.where(np.arange(600)[:, None] == 4, np.nan, PROBA)), {}, "row 5 holds no number"),
        (lambda: csv(-PROBA), {"kind": "votes"}, "row 1 holds a number below 0, which is not possible for votes"),
        (lambda: csv(np.random.default_rng(0).random((600, 3))), {}, "do not sum to 1.* --proba-kind, one of"),
        (lambda: csv(PROBA[:30], ["other"] * 30), {}, "holds only one class"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_one_sentence(source, options, words):
    with pytest.raises((TableError, InputError), match=words):
        fit_proba(source(), "y", **options)


def test_rows_without_a_label_keep_their_numbers():
    labels = Y.astype(object)
    labels[3] = None
    with pytest.raises(TableError, match="counting rows with a label: row 7 sums to"):
        fit_proba(csv(WRONG, labels), "y")
    broken = PROBA.copy()
    broken[3] = np.nan
    assert fit_proba(csv(broken, labels), "y").model.facts["rows_without_label"] == 1


def test_rows_are_divided_by_their_sum_where_the_kind_is_given():
    found = fit_proba(csv(WRONG), "y", kind="probabilities")
    assert found.model.predict_proba(pa.table({"billing": [3.0], "other": [0.5], "refund": [0.5]})).shape == (1, 3)


def test_new_rows_must_have_the_detected_kind():
    model = fit_proba(csv(PROBA), "y").model
    with pytest.raises(TableError, match=r"row 2 sums to 1\.5, but probabilities must sum to 1"):
        model.answers(pa.table({"billing": [0.5, 1.0], "other": [0.5, 0.5], "refund": [0.0, 0.0]}))


def test_two_columns_of_one_class():
    table = pa.table({"0": [0.5], "0.0": [0.2], "1": [0.3], "y": [0]})
    with pytest.raises(TableError, match=r"'0' and '0.0' both belong to class '0': leave one out"):
        class_columns(table, "y", ["0", "1"])


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("logits", [np.inf, 0.0], "holds infinity"),
        ("votes", [np.inf, 0.0], "holds infinity"),
        ("logits", [-np.inf, -np.inf], "holds no number"),
    ],
)
def test_infinite_numbers_have_no_probability(kind, row, message):
    with pytest.raises(InputError, match=message):
        PrecomputedProbabilities(["a", "b"], kind).predict_proba([row])
    assert PrecomputedProbabilities(["a", "b"], "logits").predict_proba([[-np.inf, 0.0]]).tolist() == [[0.0, 1.0]]


def test_probabilities_of_classes_without_a_row_are_named_as_the_reason():
    table = pd.DataFrame(PROBA[Y != "other"], columns=CLASSES).assign(y=Y[Y != "other"])
    with pytest.raises(TableError, match=r"do not sum to 1, .*--all-classes for classes without a labelled row"):
        fit_proba(io.BytesIO(table.to_csv(index=False).encode()), "y")
