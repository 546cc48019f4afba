"""Rows unlike those of training: the rate of false alarms, what is absurd, and what is said about it."""

from copy import copy

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from demur import Coverage, RejectClassifier, RejectOption, RiskControl, load, save
from demur.errors import InputError
from demur.novelty import UNSEEN, Novelty
from demur.tabular import evaluate_table, fit_table


def normal(n_rows, rng):
    return rng.normal(size=(n_rows, 4)), None


def heavy_tailed(n_rows, rng):
    return rng.standard_cauchy(size=(n_rows, 2)), None


def nearly_constant(n_rows, rng):
    """Many columns in which a value is rare: each new row may be the first with one of them."""
    return (rng.uniform(size=(n_rows, 60)) < 0.01).astype(float), None


def mixed(n_rows, rng):
    rows = np.column_stack(
        [
            rng.lognormal(0, 2, n_rows),
            rng.integers(4, size=n_rows),
            np.minimum(rng.zipf(1.6, n_rows), 60) - 1,
            np.zeros(n_rows),
        ]
    )
    rows[rng.uniform(size=n_rows) < 0.05, 0] = np.nan
    rows[rng.uniform(size=n_rows) < 0.05, 1] = np.nan
    return rows, [False, True, True, False]


KINDS = [normal, heavy_tailed, nearly_constant, mixed]


def false_alarms(draw, n_rows, rates, repetitions, seed=0):
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(repetitions):
        rows, categorical = draw(n_rows, rng)
        usual, (new, _) = Novelty().fit(rows, categorical), draw(200, rng)
        shares.append([usual.novel(new, rate).mean() for rate in rates])
    return np.mean(shares, axis=0), np.std(shares, axis=0) / np.sqrt(repetitions)


@pytest.mark.parametrize("draw", KINDS)
def test_false_alarms_stay_below_their_rate(draw):
    mean, error = false_alarms(draw, 60, ("auto", 0.1), repetitions=25)
    assert mean[0] <= 2 / 61 + 3 * error[0]
    assert mean[1] <= 0.1 + 3 * error[1]


@pytest.mark.slow
@pytest.mark.parametrize("draw", KINDS)
@pytest.mark.parametrize("n_rows", [30, 200, 1000])
def test_false_alarms_stay_below_their_rate_in_long_simulations(draw, n_rows):
    rates = ("auto", 0.05, 0.1, 0.2)
    mean, error = false_alarms(draw, n_rows, rates, repetitions=200, seed=n_rows)
    assert (mean <= np.array([2 / (n_rows + 1), 0.05, 0.1, 0.2]) + 3 * error).all()


def test_the_rate_is_used_up_where_values_are_continuous():
    """A rule that calls nothing novel would keep every rate."""
    mean, error = false_alarms(normal, 300, (0.1,), repetitions=15)
    assert mean[0] >= 0.06 - 3 * error[0]


@pytest.fixture(scope="module")
def usual():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(size=500), rng.integers(3, size=500), rng.normal(10, 1, size=500)])
    return Novelty().fit(rows, [False, True, False])


def test_absurd_values_are_novel_by_default_and_ordinary_ones_are_not(usual):
    rows = [[0.5, 1, 10.0], [1e6, 1, 10.0], [0.5, UNSEEN, 10.0], [0.5, 7, 10.0], [0.5, 1, -1e300], [1.001, 1, 10.0]]
    assert usual.novel(rows).tolist() == [False, True, True, True, True, False]
    assert usual.outside(rows).tolist()[1:5] == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]


def test_infinite_and_missing_values(usual):
    rows = [[np.inf, 1, 10.0], [np.nan, 1, 10.0], [np.nan, np.nan, np.nan]]
    novel = usual.novel(rows)
    assert novel[0]
    assert not novel[1:].any()  # missing values are ordinary, even where training had none
    assert not usual.outside(rows)[1:].any()


def test_p_values_by_hand():
    """Ten rows at 0, 1, ..., 9: each of eight is one step from the next, and the outermost two also lie outside."""
    usual = Novelty(rate=0.5).fit(np.arange(10.0)[:, None])
    assert usual.scores_[:8] == pytest.approx(usual.scores_[0], rel=0.2)
    assert usual.scores_[8:] == pytest.approx(1, rel=0.2)
    assert usual.p_values([[3.0], [20.0]]) == pytest.approx([1.0, 1 / 11])
    assert usual.novel([[3.0], [20.0]]).tolist() == [False, True]


@pytest.mark.parametrize("draw", KINDS)
def test_what_is_novel_is_what_has_a_small_p_value(draw):
    rng = np.random.default_rng(1)
    rows, categorical = draw(150, rng)
    new, _ = draw(300, rng)
    new = np.vstack([new, 3 * new])
    usual = Novelty(rate=0.07).fit(rows, categorical)
    assert np.array_equal(usual.novel(new), usual.p_values(new) <= 0.07)


def test_one_row_at_a_time_is_all_at_once(usual):
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.uniform(-0.2, 1.2, 300), rng.integers(3, size=300), rng.normal(10, 2, size=300)])
    for rate in ("auto", 0.01, 0.1):
        one_by_one = np.concatenate([usual.novel(row[None], rate) for row in rows])
        assert np.array_equal(usual.novel(rows, rate), one_by_one)


def test_rows_of_one_block_are_scored_from_the_other_blocks():
    """Each row twice: from its copy every row is at a distance of 0, and nothing new would ever be ordinary."""
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(100, 3)), 2, axis=0)
    apart = Novelty(0.05).fit(rows, blocks=np.repeat(np.arange(100), 2))
    assert Novelty(0.05).fit(rows).scores_[0] == 0 < apart.scores_[0]
    assert apart.novel(rng.normal(size=(2000, 3))).mean() <= 0.06


@pytest.mark.parametrize("rate", [0, 1, 1.5, True, "always", None, np.nan])
def test_rates_that_make_no_sense_are_refused(rate):
    with pytest.raises(InputError, match="share between 0 and 1"):
        Novelty(rate)


def test_a_rate_that_needs_more_rows_says_how_many():
    with pytest.raises(InputError, match=r"takes 999 training rows, and there are 100: ask for at least 0\.01"):
        Novelty(0.001).fit(np.arange(100.0)[:, None])
    with pytest.raises(InputError, match="at least 10"):
        Novelty().fit([[1.0]])
    with pytest.raises(InputError, match="have 2 features, and those of training 1"):
        Novelty().fit(np.arange(100.0)[:, None]).novel([[1.0, 2.0]])


def test_many_columns_and_an_outlier_in_one():
    rng = np.random.default_rng(4)
    usual = Novelty().fit(rng.normal(size=(60, 3000)))
    new = rng.normal(size=(20, 3000))
    assert not usual.novel(new).any()
    new[0, 17] = 1e4
    assert usual.novel(new).tolist() == [True] + 19 * [False]


X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def iris():
    return RejectOption(LogisticRegression(max_iter=1000)).fit(X, Y)


def test_estimators_decline_and_say_why(iris):
    rows = np.vstack([X[[0, 77]], [[1e6, 3, 4, 1]]])
    decision = iris.decide(rows, cost=0.05)
    assert decision.reason.tolist() == ["", "ambiguous", "novel"]
    assert iris.predict(rows)[2] == iris.reject_label_
    assert decision.confidence[2] == 0
    assert decision.acceptance[2] <= 0
    assert iris.decide(rows, cost=0.49).reject.tolist() == [False, False, True]  # no price makes it an answer


def test_the_rate_can_change_without_a_refit(iris):
    rows, model = X * [1, 1.3, 1, 1], copy(iris)
    shares = [model.set_params(novelty=rate).decide(rows).novel.mean() for rate in ("auto", 0.02, 0.2)]
    assert 0 <= shares[0] < shares[1] < shares[2] < 1
    assert model.set_params(novelty=None).decide(rows).novel is None


def test_networks_decline_what_is_novel():
    model = RejectClassifier(hidden_units=4, epochs=2, weight_decay=1e-4, random_state=0).fit(X, Y)
    assert model.decide([X[0], [1e6, 3, 4, 1]]).novel.tolist() == [False, True]


def test_frames_with_categories():
    pd = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(size=200), "pet": rng.choice(["cat", "dog"], 200)})
    coded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["pet"]), remainder="passthrough")
    model = RejectOption(make_pipeline(coded, LogisticRegression())).fit(frame, frame["size"] > 0.5)
    assert model.decide(pd.DataFrame({"size": [0.1, 0.1], "pet": ["cat", "newt"]})).novel.tolist() == [False, True]


def test_rows_that_cannot_be_compared():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import make_pipeline

    texts, y = np.array(["good day", "bad night"] * 20), [0, 1] * 20
    words = make_pipeline(CountVectorizer(), LogisticRegression())
    assert RejectOption(words).fit(texts, y).decide(["good"]).novel is None
    with pytest.raises(InputError, match=r"novelty=0\.1 needs at least .* rows of numbers"):
        RejectOption(words, novelty=0.1).fit(texts, y)


@pytest.mark.parametrize("load_data", [load_wine, load_breast_cancer, load_digits])
def test_ordinary_rows_are_not_novel_by_default(load_data):
    rows, y = load_data(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: len(y) * 2 // 3], order[len(y) * 2 // 3 :]
    novel = Novelty().fit(rows[train]).novel(rows[test])
    assert novel.mean() <= 0.002


def test_guarantees_are_about_rows_that_are_not_novel():
    """Rows that will be declined in any case neither support a guarantee nor spoil it, and count as not covered."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(600, 1)) + np.repeat([[0.0], [3.0]], 300, axis=0)
    y = np.repeat([0, 1], 300)
    with_odd = np.vstack([rows, 1e6 + np.arange(400.0)[:, None]]), np.r_[y, np.zeros(400, dtype=int)]
    model = RejectOption(GaussianNB(), rule=RiskControl(0.1)).fit(rows, y).fit_rule(*with_odd)
    assert model.rule_.certificate_.n_rows == 600
    covered = RejectOption(GaussianNB(), rule=Coverage(0.5)).fit(rows, y).fit_rule(*with_odd)
    decision = covered.decide(with_odd[0])
    assert (decision.reason[600:] == "novel").all()
    assert 0.5 <= 1 - decision.reject.mean() <= 0.51


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n_rows = 300
    kind = rng.integers(2, size=n_rows)
    days = np.datetime64("2023-01-01") + rng.integers(0, 700, n_rows)
    return pa.table(
        {
            "size": rng.uniform(size=n_rows) + kind,
            "shop": rng.choice(["north", "south"], n_rows),
            "when": days.astype("datetime64[us]"),
            "kind": np.where(kind, "b", "a"),
        }
    )


@pytest.fixture(scope="module")
def model(table):
    return fit_table(table, "kind", model="lr")


ODD = pa.table(
    {
        "size": [0.5, 1e6, 0.5, 0.5, None],
        "shop": ["north", "moon", "moon", "north", "south"],
        "when": np.array(["2023-06-01", "9999-01-01", "2023-06-01", "9999-01-01", "2023-06-01"], "datetime64[us]"),
    }
)


def test_the_reason_names_the_unusual_columns(model):
    answers = model.answers(ODD)
    assert answers.column("reason").to_pylist()[:4] == [None, "novel: size, shop, when", "novel: shop", "novel: when"]
    assert answers.column("rejected").to_pylist()[:4] == [False, True, True, True]
    assert answers.column("confidence").to_pylist()[1] == 0
    assert model.decide(ODD).novel.tolist() == [False, True, True, True, False]


def test_ordinary_rows_of_tables_are_not_novel(model, table):
    judged = evaluate_table(model, table)
    assert judged.n_novel == 0
    assert judged.to_json()["counts"]["novel"] == 0
    odd = evaluate_table(model, ODD.append_column("kind", pa.array(list("abbab"))))
    assert odd.n_novel == 3
    assert "3 rows are declined as novel" in " ".join(odd.remarks())
    assert odd.at(0.45).n_novel == 3
    assert odd.at(0.45).counts.n_rejected >= 3


def test_tables_with_another_rate_and_without(table):
    assert fit_table(table, "kind", model="lr", novelty=None).decide(ODD).novel is None
    strict = fit_table(table.slice(0, 200), "kind", model="lr", novelty=0.2)
    assert 0.02 <= strict.decide(table.slice(200)).novel.mean() <= 0.35


def test_saved_and_loaded(model, iris, tmp_path):
    for name, one in (("table", model), ("iris", iris)):
        save(one, tmp_path / name)
    assert load(tmp_path / "table").answers(ODD).equals(model.answers(ODD))
    rows = np.vstack([X, X * 3])
    assert np.array_equal(load(tmp_path / "iris").decide(rows).novel, iris.decide(rows).novel)


@pytest.mark.parametrize("draw", [*KINDS, "whole"])
def test_small_batches_agree_with_large_ones(draw):
    rng = np.random.default_rng(3)
    if draw == "whole":  # nothing missing and no long tail: the shortest of all ways
        rows, categorical = np.c_[rng.uniform(size=(300, 3)), rng.integers(5, size=(300, 2))], [False] * 3 + [True] * 2
    else:
        rows, categorical = draw(300, rng)
    usual = Novelty(0.05).fit(rows, categorical)
    new = rows[rng.integers(len(rows), size=120)].copy()
    new[:60] += rng.normal(size=(60, rows.shape[1])) * (~np.array(categorical or [False] * rows.shape[1]))
    new[60:70, -1], new[70:75, 0], new[75:80, -2] = UNSEEN, 1e6, np.nan
    many = usual.novel(new)
    assert 0 < many.sum() < len(new)
    assert [bool(usual.novel(one[None])[0]) for one in new] == many.tolist()
    assert np.concatenate([usual.novel(new[k : k + 16]) for k in range(0, len(new), 16)]).tolist() == many.tolist()


def test_a_few_rows_of_another_fit_and_rate():
    rng = np.random.default_rng(0)
    rows, far = rng.uniform(size=(200, 2)), [[0.5, 4.0]]
    usual = Novelty(0.01).fit(rows)
    assert usual.novel(far).tolist() == [True]
    assert usual.fit(rows * 10).novel(far).tolist() == [False]
    assert usual.novel([[5.0, 11.0]], rate=0.1).tolist() == [True]
    assert usual.novel([[5.0, 5.0]], rate=0.01).tolist() == [False]
    assert usual.set_params(rate="auto").novel([[5.0, 5.0]]).tolist() == [False]


def test_infinite_values_of_training_rows_are_ordinary_in_new_rows():
    rng = np.random.default_rng(0)

    def draw(n_rows):
        return np.column_stack([np.where(rng.random(n_rows) < 0.1, np.inf, 1.0), rng.normal(size=n_rows)])

    usual = Novelty(rate=0.05).fit(draw(500))
    assert usual.novel(draw(2000)).mean() < 0.08
    assert not usual.novel(draw(2000), "auto").any()
