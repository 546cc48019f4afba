"""The monitor: fair bets, rare false alarms, and alarms that do not depend on how a stream is split."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.deploy import Monitor, Reference, risk_sequence
from demur.deploy.monitoring import DriftBets, RiskBets
from demur.errors import InputError

DELTA = 0.05


def rows(rng, n, sure=16, shares=(0.5, 0.3, 0.2)):
    confidence = rng.beta(sure, 2, size=n)
    return confidence < 0.8, confidence, rng.choice(len(shares), size=n, p=shares)


def reference(rng, n=400):
    return Reference.of(*rows(rng, n), rng.uniform(size=n) < 0.05, classes=["a", "b", "c"])


@pytest.mark.parametrize("n_before", [0, 10, 24, 25, 74, 75, 1000])
@pytest.mark.parametrize("risk", [0.01, 0.2, 0.7])
def test_a_bet_on_the_risk_is_fair(n_before, risk):
    """At the largest risk allowed, the capital expected after a row is the capital before it."""
    past, after = np.random.default_rng(0).uniform(size=n_before) < 2 * risk, []
    for outcome in (False, True):
        bets = RiskBets([risk])
        bets.bet(past)
        before = np.exp(bets.log_capital)
        after.append(np.exp(bets.bet([outcome])[0]))
    assert (1 - risk) * after[0] + risk * after[1] == pytest.approx(before, rel=1e-12)
    assert after[0] < after[1]  # a lower risk makes the bettor poorer


@pytest.mark.parametrize("n_before", [0, 10, 24, 25, 74, 75, 1000])
def test_a_bet_on_drift_is_fair(n_before):
    """With one kind of rows the p-value is the uniform number itself; the mean over it leaves the capital as it is."""
    past, after = np.random.default_rng(0).beta(2, 1, size=n_before), []
    for u in (np.arange(10) + 0.5) / 10:
        bets = DriftBets([5])
        bets.bet(np.zeros(n_before, dtype=int), past)
        before = np.exp(bets.log_capital)
        after.append(np.exp(bets.bet([0], [u])[0]))
    assert np.mean(after) == pytest.approx(before, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 6))
@settings(max_examples=30)
def test_p_values_are_ranks_among_all_rows_before(seed, n_rows, n_kinds):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, size=n_kinds)
    kinds, ties = rng.integers(n_kinds, size=n_rows), rng.uniform(size=n_rows)
    pool, expected = np.repeat(np.arange(n_kinds), counts).tolist(), []
    for kind, u in zip(kinds, ties, strict=True):
        pool.append(kind)
        below, equal = sum(one < kind for one in pool), sum(one == kind for one in pool)
        expected.append((below + u * equal) / len(pool))
    bets = DriftBets(counts)
    assert bets._p_values(kinds, ties) == pytest.approx(expected, rel=1e-12)
    assert bets.counts.tolist() == np.bincount(pool, minlength=n_kinds).tolist()


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 300), max_size=4))
@settings(max_examples=12)
def test_saving_and_loading_between_any_two_rows_changes_nothing(tmp_path_factory, seed, cuts):
    rng = np.random.default_rng(seed)
    known, path = reference(rng), tmp_path_factory.mktemp("state") / "state.json"
    stream = [np.concatenate(parts) for parts in zip(rows(rng, 100), rows(rng, 200, sure=6), strict=True)]
    wrong = rng.uniform(size=300) < 0.2
    whole = Monitor(known, max_risk=0.06)
    whole.watch(*stream)
    whole.review(stream[0], wrong)
    Monitor(known, max_risk=0.06).save(path)
    edges = [0, *sorted(cuts), 300]
    for start, stop in itertools.pairwise(edges):
        monitor = Monitor.load(path)
        monitor.watch(*(part[start:stop] for part in stream))
        monitor.review(stream[0][start:stop], wrong[start:stop])
        monitor.save(path)
    found, expected = Monitor.load(path).to_json(), whole.to_json()
    assert found.pop("evidence") == pytest.approx(expected.pop("evidence"))
    for figures in (found, expected):
        figures["alarms"].sort(key=lambda alarm: alarm["check"])
    for alarm in expected["alarms"]:
        alarm["capital"] = pytest.approx(alarm["capital"])
    assert found == expected
    assert "confidence" in {alarm.check for alarm in whole.alarms}


def false_alarms(n_runs, n_rows, seed=0):
    """Return the share of runs without any change in which each check ever reaches 1 / delta."""
    rng, found = np.random.default_rng(seed), {}
    for name, shares in {"two kinds": [0.9, 0.1], "five kinds": [0.4, 0.3, 0.15, 0.1, 0.05]}.items():
        edges = np.cumsum(shares)[:-1]
        kinds = np.searchsorted(edges, rng.uniform(size=(n_runs, 60 + n_rows)))
        bets = DriftBets((kinds[:, :60, None] == np.arange(len(shares))).sum(axis=1))
        found[name] = bets.bet(kinds[:, 60:], rng.uniform(size=(n_runs, n_rows)))
    wrong = rng.uniform(size=(n_runs, n_rows)) < 0.05
    found["known risk"] = RiskBets(np.full((n_runs, 1), 0.05)).bet(wrong)
    return {name: float((capital.max(axis=1) >= np.log(1 / DELTA)).mean()) for name, capital in found.items()}


def most_by_chance(n_runs):
    return DELTA + 4 * np.sqrt(DELTA * (1 - DELTA) / n_runs)


def test_false_alarms_have_probability_at_most_delta():
    for name, share in false_alarms(300, 1500).items():
        assert share <= most_by_chance(300), name


@pytest.mark.slow
def test_false_alarms_have_probability_at_most_delta_however_long_it_watches():
    for name, share in false_alarms(500, 20_000, seed=1).items():
        assert share <= most_by_chance(500), name


def highest_evidence(risk, n_reference, n_runs, n_rows, rng):
    """Return the largest evidence of each run in which audited answers are wrong as often as reference answers."""
    bets = RiskBets.of_reference(rng.binomial(n_reference, risk, size=n_runs), np.full(n_runs, n_reference))
    return np.exp(bets.bet(rng.uniform(size=(n_runs, n_rows)) < risk).max(axis=1))


def few_false_alarms(evidence):
    """Check the guarantee at several levels: evidence of 1 / delta has probability at most delta."""
    for delta in (0.3, 0.1, DELTA):
        share = (evidence >= 1 / delta).mean()
        assert share <= delta + 4 * np.sqrt(delta * (1 - delta) / len(evidence)), delta


@pytest.mark.parametrize(("risk", "n_reference"), [(0.05, 1), (0.05, 200), (0.5, 20)])
def test_false_alarms_against_an_unknown_risk_have_probability_at_most_delta(risk, n_reference):
    few_false_alarms(highest_evidence(risk, n_reference, 100, 300, np.random.default_rng(0)))


@pytest.mark.slow
@pytest.mark.parametrize(("risk", "n_reference"), [(0.05, 1000), (0.002, 1000), (0.95, 50)])
def test_false_alarms_against_an_unknown_risk_have_probability_at_most_delta_however_long_it_watches(risk, n_reference):
    few_false_alarms(highest_evidence(risk, n_reference, 200, 3000, np.random.default_rng(1)))


def test_a_risk_that_falls_and_returns_is_no_alarm():
    """It never exceeds that of the reference, though it rises."""
    bets, rng = RiskBets.of_reference(50, 1000), np.random.default_rng(0)
    for risk in (0.01, 0.05, 0.01, 0.05):
        assert bets.bet(rng.uniform(size=1000) < risk).max() < np.log(1 / DELTA)


def test_without_reference_answers_there_is_no_evidence():
    assert RiskBets.of_reference(0, 0).bet(np.ones(1000)).max() < 1e-9


@pytest.mark.parametrize(("n_wrong", "n_rows"), [(0, 5), (5, 5), (0, 1000), (30, 1000), (990, 1000)])
def test_the_evidence_is_the_smallest_over_all_risks(n_wrong, n_rows):
    """The bound on a grid is below the product at every risk, computed here one by one."""
    from demur.deploy.monitoring import _DEVIATIONS, _FLOOR

    rng = np.random.default_rng(0)
    wrong = rng.uniform(size=400) < np.repeat([0.05, 0.6], 200)
    found = RiskBets.of_reference(n_wrong, n_rows).bet(wrong)
    risks = np.linspace(1e-4, 1 - 1e-4, 300)
    tilt = _DEVIATIONS / np.sqrt((n_rows + 1) * risks)
    e_value = np.exp(-tilt * n_wrong) / (1 - risks + risks * np.exp(-tilt)) ** n_rows
    capital = np.logaddexp(RiskBets(risks[:, None]).bet(np.tile(wrong, (300, 1))), 0) - np.log(2)
    assert (found <= (capital + np.log(_FLOOR + (1 - _FLOOR) * e_value)[:, None]).min(axis=0) + 1e-9).all()


def doubling_delays(bets, n_runs, rng, before=500):
    """Return the audited answers until the alarm, at delta / 2, of runs whose risk doubles from 5 to 10 %."""
    wrong = rng.uniform(size=(n_runs, before + 2500)) < np.repeat([0.05, 0.1], [before, 2500])
    high = bets.bet(wrong)[:, before:] >= np.log(2 / DELTA)
    return np.where(high.any(axis=1), high.argmax(axis=1) + 1, 2501)


@pytest.mark.slow
def test_a_doubled_risk_is_detected_in_300_audited_answers_or_600_with_1000_reference_rows():
    rng, n_runs = np.random.default_rng(0), 500
    known = doubling_delays(RiskBets(np.full((n_runs, 1), 0.05)), n_runs, rng)
    reference = RiskBets.of_reference(rng.binomial(1000, 0.05, size=n_runs), np.full(n_runs, 1000))
    unknown = doubling_delays(reference, n_runs, rng)
    assert np.median(known) <= 310
    assert np.median(unknown) <= 600


def test_the_forecast_of_a_doubled_risk_is_near_the_median_delay():
    rng = np.random.default_rng(0)
    monitor = Monitor(reference(rng), max_risk=0.05)
    delays = doubling_delays(RiskBets(np.full((100, 1), 0.05)), 100, rng, before=0)
    assert np.median(delays) / 1.5 < monitor.rows_to_doubling < np.median(delays) * 1.5
    monitor.review(np.zeros(300, dtype=bool), rng.uniform(size=300) < 0.1)  # some of the evidence is there already
    assert monitor.rows_to_doubling < np.median(delays) / 1.5


def test_a_risk_that_doubles_is_seen_before_a_window_sees_it():
    """Against a binomial test on every 250 audited rows that keeps the same delta over 100,000 of them."""
    from scipy.stats import binom

    rng, n_runs, before, after = np.random.default_rng(0), 100, 500, 2500
    risk = np.repeat([0.05, 0.1], [before, after])
    wrong = rng.uniform(size=(n_runs, len(risk))) < risk
    capital = RiskBets(np.full((n_runs, 1), 0.05)).bet(wrong)[:, before:]
    assert (capital.max(axis=1) >= np.log(1 / DELTA)).all()
    ours = np.argmax(capital >= np.log(1 / DELTA), axis=1) + 1
    counts = wrong[:, before:].reshape(n_runs, -1, 250).sum(axis=2)
    raised = counts > binom.isf(DELTA / 400, 250, 0.05)
    windows = np.where(raised.any(axis=1), 250 * (np.argmax(raised, axis=1) + 1), after)
    assert np.median(ours) < np.median(windows)
    assert np.quantile(ours, 0.9) < np.quantile(windows, 0.9)


def test_each_check_sees_its_own_change_and_no_other():
    rng = np.random.default_rng(0)
    known = reference(rng, 1000)
    changes = {
        "class mix": lambda: rows(rng, 3000, shares=(0.3, 0.3, 0.4)),
        "confidence": lambda: (lambda reject, sure, label: (reject, np.where(reject, sure, 0.85), label))(
            *rows(rng, 3000)
        ),
    }
    for check, change in changes.items():
        monitor = Monitor(known, max_risk=0.1)
        assert monitor.watch(*rows(rng, 2000)) == []
        assert [alarm.check for alarm in monitor.watch(*change())] == [check]
        assert monitor.alarms[0].row > 2000


def test_the_audit_estimates_the_risk_of_the_answers():
    """Declined rows are wrong far more often, and leave the estimate alone."""
    rng = np.random.default_rng(0)
    monitor = Monitor(reference(rng), max_risk=0.2)
    reject = rng.uniform(size=4000) < 0.3
    wrong = rng.uniform(size=4000) < np.where(reject, 0.6, 0.1)
    monitor.review(reject, wrong)
    assert monitor.risk.estimate == wrong[~reject].mean()
    assert monitor.risk.low < 0.1 < monitor.risk.high
    assert monitor.to_json()["declined_rightly"] == wrong[reject].mean()
    assert monitor.alarms == []


def test_the_confidence_sequence_holds_at_all_times_also_where_the_risk_moves():
    rng, n_runs, n_rows = np.random.default_rng(0), 100, 1500
    risk = 0.1 * (1 + np.sin(np.arange(n_rows) / 200))
    wrong = np.cumsum(rng.uniform(size=(n_runs, n_rows)) < risk, axis=1)
    looks = np.unique(np.geomspace(1, n_rows, 25).astype(int)) - 1
    mean = np.cumsum(risk) / np.arange(1, n_rows + 1)

    def misses(run, look):
        found = risk_sequence(wrong[run, look], look + 1, DELTA)
        return not found.low <= mean[look] <= found.high

    missed = [any(misses(run, look) for look in looks) for run in range(n_runs)]
    assert np.mean(missed) <= most_by_chance(n_runs)


@pytest.mark.parametrize("n_rows", [1, 20, 10_000])
def test_the_confidence_sequence_at_its_ends(n_rows):
    none, all_ = risk_sequence(0, n_rows), risk_sequence(n_rows, n_rows)
    assert (none.low, all_.high) == (0, 1)
    assert none.high < 1 or n_rows == 1
    assert all_.low == pytest.approx(1 - none.high, abs=1e-9)
    assert none.high > 1 - (DELTA / 2) ** (1 / n_rows)  # never narrower than an interval for one look


def test_the_draw_depends_on_nothing_but_seed_source_and_row():
    known = reference(np.random.default_rng(0))
    monitor = Monitor(known, max_risk=0.1, audit=0.1)
    whole = monitor.draw("today.csv", 0, 20_000)
    pieces = [monitor.draw("today.csv", start, 37) for start in range(0, 20_000 - 37, 37)]
    assert np.concatenate(pieces).tolist() == whole[: 37 * len(pieces)].tolist()
    assert abs(whole.mean() - 0.1) < 4 * np.sqrt(0.09 / 20_000)
    assert (monitor.draw("other.csv", 0, 20_000) & whole).mean() < 0.02
    assert (Monitor(known, max_risk=0.1, audit=0.1).draw("today.csv", 0, 20_000) & whole).mean() < 0.02
    assert (Monitor(known, max_risk=0.1, audit=0.1, seed=monitor.seed).draw("today.csv", 0, 20_000) == whole).all()


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"format": 1}', '{"format": 99}'])
def test_a_file_that_is_no_state_is_refused(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"state\.json"):
        Monitor.load(path)


def test_refusals():
    known = reference(np.random.default_rng(0))
    for wrong in ({"max_risk": 0.0}, {"max_risk": 0.1, "delta": 1.0}, {"max_risk": 0.1, "audit": 2.0}):
        with pytest.raises(InputError, match=r"must be in|share"):
            Monitor(known, **wrong)
    monitor = Monitor(known, max_risk=0.1)
    with pytest.raises(InputError, match="3 classes"):
        monitor.watch([False], [0.9], [3])
    with pytest.raises(InputError, match="one shape"):
        monitor.watch([False, True], [0.9], [2])
    with pytest.raises(InputError, match="NaN"):
        monitor.watch([False], [np.nan], [2])
