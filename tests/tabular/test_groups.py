"""Groups of rows: their figures, and a guarantee that holds in each of them."""

import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from sklearn.naive_bayes import GaussianNB

from demur import RejectOption, RiskControl
from demur.columns import TableError
from demur.errors import InputError
from demur.guarantees import NoGuaranteeError
from demur.tabular import FitOptions, LabelledTable, evaluate_table, fit_file, fit_table
from demur.tabular.evaluation_figures import figures_by_group


def test_figures_by_hand():
    reject, wrong = np.array([True, False, False, False]), np.array([True, True, False, False])
    found = figures_by_group(["b", "a", None, "a"], reject, wrong, cost=0.25)
    assert [one.name for one in found] == ["(none)", "a", "b"]
    assert [one.counts.n_rows for one in found] == [1, 2, 1]
    assert [one.coverage.estimate for one in found] == [1, 1, 0]
    assert [one.risk.estimate for one in found] == [0, 0.5, 0.25]
    assert np.isnan(found[2].errors.estimate)  # it gave no answer


def test_intervals_cover_all_groups_together():
    """All groups alike: in at least 95 % of samples no interval misses, and none is called different."""
    rng = np.random.default_rng(0)
    names = np.repeat([f"g{k}" for k in range(8)], 40)
    missed = different = 0
    for _ in range(200):
        wrong = rng.uniform(size=320) < 0.1
        found = figures_by_group(names.tolist(), np.zeros(320, bool), wrong)
        missed += any(not one.errors.low <= 0.1 <= one.errors.high for one in found)
        different += any(one.differs for one in found)
    assert missed <= 200 * 0.05 + 3 * np.sqrt(200 * 0.05 * 0.95)
    assert different <= missed + 10


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    site, kind = rng.choice(["good", "bad"], 1500), rng.integers(2, size=1500)
    size = 2 * kind + rng.normal(size=1500) * np.where(site == "bad", 1.5, 0.5)
    return pa.table({"size": size, "site": site, "kind": np.where(kind, "b", "a")})


def test_a_group_with_more_errors_is_named(table):
    model = fit_table(table.drop_columns("site"), "kind", model="lr")
    judged = evaluate_table(model, table, group="site")
    assert {one.name: one.differs for one in judged.by_group} == {"bad": "more", "good": "fewer"}
    assert any("Group bad has significantly more errors" in sentence for sentence in judged.sentences())
    assert [one["name"] for one in judged.to_json()["by_group"]] == ["bad", "good"]
    with pytest.raises(TableError, match="there is no column 'cite', did you mean 'site'"):
        evaluate_table(model, table, group="cite")


def risks(threshold, spread):
    """Return the error among answers above a threshold on 1 / (1 + exp(-2 |x| ...)), by a very large sample."""
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=200_000)
    x = 2 * y - 1 + rng.normal(size=len(y)) * spread
    p = 1 / (1 + np.exp(-2 * x))
    answered = np.maximum(p, 1 - p) > threshold
    return float(((x > 0) != y)[answered].mean())


def sample(rng, n_rows, spreads):
    group, y = rng.integers(len(spreads), size=n_rows), rng.integers(2, size=n_rows)
    x = 2 * y - 1 + rng.normal(size=n_rows) * np.asarray(spreads)[group]
    p = 1 / (1 + np.exp(-2 * x))
    return np.column_stack([1 - p, p]), y, group


def broken(repetitions, with_groups, seed=0):
    """Return how often a promise is made, and broken in some group; the third is harder than the model believes."""
    rng, n_made, n_broken = np.random.default_rng(seed), 0, 0
    for _ in range(repetitions):
        proba, y, group = sample(rng, 2000, SPREADS)
        try:
            threshold = RiskControl(0.1, 0.1, groups=group if with_groups else None).fit(proba, y).threshold_
        except NoGuaranteeError:
            continue
        n_made += 1
        n_broken += max(risks_of(threshold)) > 0.1
    return n_made / repetitions, n_broken / repetitions


SPREADS = (0.7, 1.0, 1.25)
_known: dict = {}


def risks_of(threshold):
    if threshold not in _known:
        _known[threshold] = [risks(threshold, spread) for spread in SPREADS]
    return _known[threshold]


@pytest.mark.slow
def test_the_guarantee_holds_in_every_group_and_not_without_groups():
    made, failed = broken(300, with_groups=True)
    assert made > 0.5
    assert failed <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 300)
    assert broken(50, with_groups=False)[1] >= 0.5


def test_the_bounds_are_those_of_the_groups():
    proba, y, group = sample(np.random.default_rng(3), 3000, (0.7, 1.2))
    rule = RiskControl(0.1, groups=np.where(group, "hard", "easy")).fit(proba, y)
    each = rule.group_certificates_
    assert list(each) == ["easy", "hard"]
    assert sum(one.n_accepted for one in each.values()) == rule.certificate_.n_accepted
    assert rule.certificate_.bound <= max(one.bound for one in each.values()) <= 0.1
    assert rule.threshold_ >= RiskControl(0.1).fit(proba, y).threshold_
    assert "in each of 2 groups" in rule.explain()


def test_small_groups_and_wrong_calls_are_refused():
    proba, y, group = sample(np.random.default_rng(4), 500, (0.5, 0.5))
    group[:5] = 7
    with pytest.raises(
        NoGuaranteeError, match=r"the weakest, '7', has 5 of the rows.*29 accepted rows .* in each group"
    ):
        RiskControl(0.1, groups=group).fit(proba, y)
    with pytest.raises(InputError, match="groups must have shape"):
        RiskControl(0.1, groups=group[1:]).fit(proba, y)


def test_groups_follow_their_rows_into_the_rule(table):
    X, y = table["size"].to_numpy()[:, None], table["kind"].to_numpy(zero_copy_only=False)
    site = table["site"].to_numpy(zero_copy_only=False)
    model = RejectOption(GaussianNB(), rule=RiskControl(0.3, groups=site)).fit(X, y)
    seen = model.rule_.group_certificates_
    assert sum(one.n_rows for one in seen.values()) == model.rule_.certificate_.n_rows < len(y)
    assert not model.decide(X).reject.all()
    fitted = fit_table(table, "kind", model="lr", rule=RiskControl(0.3, groups=site))
    assert set(fitted.classifier.rule_.group_certificates_) == {"bad", "good"}
    assert fitted.classifier.rule_.groups is None


def test_groups_of_a_rule_stay_with_their_rows_where_labels_are_missing(table):
    """Rows without a label come first: groups that were not shifted with the rows would be those of other rows."""
    empty = pa.table({"size": [0.0] * 300, "site": ["good"] * 300, "kind": pa.nulls(300, pa.string())})
    both = pa.concat_tables([empty, table])
    rule = RiskControl(0.3, groups=np.array(both["site"].to_pylist()))
    found = fit_table(both.drop_columns("site"), "kind", model="lr", rule=rule)
    alone = RiskControl(0.3, groups=np.array(table["site"].to_pylist()))
    expected = fit_table(table.drop_columns("site"), "kind", model="lr", rule=alone)
    ours, theirs = (one.classifier.fitted_rule_.group_certificates_ for one in (found, expected))
    assert ours == theirs
    for short in (rule.groups[:-1], rule.groups[300:]):
        with pytest.raises(TableError, match="groups for 1,800 rows: give one for each row"):
            fit_table(both, "kind", model="lr", rule=RiskControl(0.3, groups=short))
    with pytest.raises(TableError, match="there are 1,500 groups for 1,200 rows"):  # of which some are held out
        fit_file(io.BytesIO(csv_of(table)), "kind", model="lr", rule=alone)
    with pytest.raises(TableError, match="there are 1,800 groups for 1,500 rows"):
        fit_table(both, "kind", model="lr", rule=lambda classes: rule)


def test_groups_of_a_column_keep_the_unit_of_the_rule(table):
    data = LabelledTable.of(table, "kind")
    rule = FitOptions(rule=RiskControl(0.3, unit="row"), risk_group="site").rule_for(data, data.classes)
    assert (rule.unit, set(rule.groups)) == ("row", {"bad", "good"})


def csv_of(table):
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()
