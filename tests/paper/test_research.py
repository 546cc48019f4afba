"""The finished studies in research still run, and their pages follow from what they stored."""

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from demur.deferral import available_joint
from demur.errors import InputError
from demur.paper.experiments import BENCHMARK
from demur.paper.problems import DataPlace
from demur.paper.records import read_lines
from demur.paper.trial_means import METRICS, Numbers, Value, agreement

ROOT = Path(__file__).parents[2]
RESEARCH = ROOT / "research"
FOLDER = RESEARCH / "protocol_search"
pytestmark = pytest.mark.skipif(not RESEARCH.is_dir(), reason="research is not part of this copy")
PLACE = DataPlace("/nonexistent", stand_ins=True)


@pytest.fixture(scope="module")
def search():
    sys.path.insert(0, str(ROOT))
    from research.protocol_search import search

    yield search
    sys.path.remove(str(ROOT))


def test_the_page_is_drawn_again_from_the_summary(search):
    from research.protocol_search.page import protocol_page

    found = search.read_found(FOLDER)
    page = protocol_page(found, trials=search.SEARCH_TRIALS, rows=search.SEARCH_TEST_ROWS)
    assert page == (FOLDER / "protocol.md").read_text()
    groups = (search.CHOOSING, search.CONFIRMING)
    totals, of = defaultdict(dict), {}
    for one in found:
        totals[one.protocol, one.way][one.problem] = sum(one.agreement.within.values())
        of[one.problem] = sum(one.agreement.of.values())
    for there, elsewhere in (groups, groups[::-1]):  # the best on one group is near the best on the other
        best = max(totals.values(), key=lambda by_problem: sum(by_problem[problem] for problem in there))
        most = max(sum(by_problem[problem] for problem in elsewhere) for by_problem in totals.values())
        assert sum(best[name] for name in elsewhere) >= most - 0.1 * sum(of[name] for name in elsewhere)


def test_equals_are_told_apart_as_asked(search):
    wrong, rejected = np.array([[2.0, 0, 1, np.nan, 0]]), np.array([[0.0, 4, 2, np.nan, 4]])
    tried = search.Validation((0.5,), 4, wrong=wrong, rejected=rejected)
    assert [search.choose(tried, "risk", ties).tolist() for ties in search.TIES] == [[0], [4], [1], [0]]
    with pytest.raises(InputError, match="ties must be one of first, last"):
        search.choose(tried, "risk", "random")


@pytest.mark.slow
def test_a_small_search_counts_as_the_tables_do(search, tmp_path):
    tiny = replace(
        search._base(), trials=1, epochs=1, costs=(0.1, 0.3), max_train_rows=120, max_test_rows=150, hidden_units=4
    )
    protocols = [tiny, replace(tiny, scaling="source", refit="yes", rejector="separate")]
    said = []
    for _ in range(2):
        search.run_search(tmp_path, PLACE, protocols=protocols, device="cpu", say=said.append)
    assert len(said) == 2 * len(BENCHMARK.problems)  # the second call finds everything done
    cells = [
        (problem, cost, one.name) for problem in BENCHMARK.problems for cost in tiny.costs for one in BENCHMARK.methods
    ]
    printed = Numbers({(metric, *cell): Value(0.5, 0.2, 10) for metric in METRICS for cell in cells})
    store = search.SearchStore(tmp_path)
    found = search.score_all(store, printed, protocols)
    assert len(found) == 2 * len(search.ways_to_choose()) * len(BENCHMARK.problems)
    for one in found[:: len(found) // 7]:
        protocol = protocols["source" in one.protocol]
        numbers = search.numbers_of(store.read(protocol, one.problem), one.way)
        assert one.agreement == agreement(numbers, printed, [one.problem])
    assert torch.tensor(store.read(tiny, "vehicle")[0].test).shape[:2] == (1, 2)


@pytest.fixture(scope="module")
def stored_deferral(search):
    from research.stored_deferral import __main__

    return __main__


def test_thresholds_are_the_best_of_all_and_the_largest_of_equals(stored_deferral):
    rng = np.random.default_rng(0)
    for _ in range(30):
        score, right, human = rng.integers(0, 6, 25).astype(float), rng.random(25) < 0.6, rng.random(25) < 0.7
        candidates = [-np.inf, *np.unique(score)]
        accuracy = [np.where(score > limit, human, right).mean() for limit in candidates]
        best = max(limit for limit, value in zip(candidates, accuracy, strict=True) if value == max(accuracy))
        assert stored_deferral._best_threshold(score, right, human) == best


def test_the_page_of_stored_answers_is_drawn_again_from_its_records(stored_deferral):
    folder = RESEARCH / "stored_deferral"
    records = [body for _, body in read_lines(folder / "records.jsonl")]
    assert stored_deferral.page(records) == (folder / "outcome.md").read_text()
    assert len(records) == 3 * 8 + 3 * 6


@pytest.fixture(scope="module")
def joint_deferral(search):
    from research.joint_deferral import __main__

    return __main__


def test_the_page_of_joint_losses_is_drawn_again_from_its_records(joint_deferral):
    folder = RESEARCH / "joint_deferral"
    records, protocol = joint_deferral.read_records(folder), joint_deferral.DeferralProtocol()
    assert joint_deferral.deferral_page(records) == (folder / "outcome.md").read_text()
    assert len(records) == 5 * protocol.trials * (len(available_joint()) + 1)
    assert all(record["spec"]["train_rows"] == protocol.train_rows for record in records)


def test_joint_losses_that_are_done_are_not_done_again(joint_deferral, tmp_path, data_folder, monkeypatch):
    short = joint_deferral.DeferralProtocol(trials=1, train_rows=200, test_rows=200, epochs=2)
    monkeypatch.setattr(joint_deferral, "available_joint", lambda: ["ms"])
    for _ in range(2):
        joint_deferral.compute(tmp_path, data_folder, short, ["vehicle"])
    assert [record["method"] for record in joint_deferral.read_records(tmp_path)] == ["ms", "DeferOption"]


@pytest.mark.slow
def test_stored_answers_give_the_stored_figures(stored_deferral, data_folder):
    folder = RESEARCH / "stored_deferral"
    known = [body for _, body in read_lines(folder / "records.jsonl")]
    for record, run in stored_deferral.work(data_folder / "deferral"):
        if (record["problem"], record["trial"]) == ("hatespeech", 0):
            (expected,) = [body for body in known if record.items() <= body.items()]
            assert run()["accuracy"] == pytest.approx(expected["accuracy"], abs=2e-3)
