"""Every loss under the paper's protocol: which are run, and what the page says."""

import re
from pathlib import Path

import pytest

from demur.losses import available, get
from demur.paper import BENCHMARK, MODERN, DataPlace, compute_records, quick
from demur.paper.experiments import chosen_experiments
from demur.paper.pages import write_outputs
from demur.paper.trial_means import Published
from demur.theory import check_calibration
from demur.theory.calibration_check import certify

LOSSES = ("ce", "ms", "pr+mae", "gamblers", "mpc+log")


def test_every_loss_for_many_classes_is_in_it_under_the_benchmarks_protocol():
    assert [method.loss for method in MODERN.methods] == available(n_classes=3)
    assert MODERN.protocol == BENCHMARK.protocol
    assert MODERN.problems == BENCHMARK.problems


def test_the_page_of_losses_has_a_row_for_each():
    page = (Path(__file__).parents[2] / "docs" / "modern_losses.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| `")]
    verdicts = {name: row.split("|")[3].strip() for row in table for name in re.findall("`(.+?)`", row.split("|")[1])}
    assert sorted(verdicts) == available(n_classes=3)
    for name, verdict in verdicts.items():
        assert verdict.startswith("calibrated" if get(name).calibrated_for(3) else "refuted")
        proved = certify(get(name).for_classes(3), 3, 0.2) is not None
        assert ("theorem" in verdict.partition("(")[0]) == proved
        needs = next(row for row in table if f"`{name}`" in row).split("|")[4]
        assert ("one per cost" in needs) == get(name).trained_for_cost


def test_all_means_the_papers_experiments():
    assert [one.name for one in chosen_experiments("all", short=False, settings={})] == ["synthetic", "benchmark"]
    assert [one.name for one in chosen_experiments("modern", short=True, settings={})] == ["modern"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("modern")
    small = quick(MODERN).only(problems=("vehicle",), methods=LOSSES)
    small = small.with_settings({"epochs": "2", "costs": "0.1,0.3", "hidden_units": "5"})
    place = DataPlace("/nonexistent", stand_ins=True)
    compute_records([small], out, place, device="cpu")
    write_outputs(out, [small], Published(), place)
    return (out / "README.md").read_text(), (out / "modern.csv").read_text()


def test_the_page_has_one_row_for_each_loss_and_says_what_it_is(page):
    text, figures = page
    assert "**A quick run**" in text
    assert "synthetic stand-in" in text
    summary = {row.split("|")[1].strip(): row for row in text.splitlines() if "| one " in row}
    assert set(summary) == set(LOSSES)
    assert "| calibrated | one for all costs |" in summary["ce"]
    assert "| calibrated | one per cost |" in summary["pr+mae"]
    assert "| not calibrated | one per cost |" in summary["gamblers"]
    assert "a quick run does not check it" in text
    assert len(figures.splitlines()) == 1 + 3 * 2 * len(LOSSES)


@pytest.mark.slow
def test_the_stored_page_has_the_checkers_verdicts():
    """For two theorems and two refutations; all losses take minutes."""
    text = (Path(__file__).parents[2] / "results" / "modern" / "README.md").read_text()
    rows = [row.split("|") for row in text.splitlines() if "| one " in row]
    verdicts = {row[1].strip(): row[3].strip() for row in rows}
    assert sorted(verdicts) == available(n_classes=3)
    for name in ("ce", "mao+exp", "gamblers", "mpc+log"):
        report = check_calibration(name, 3, 0.2)
        assert verdicts[name] == f"{report.verdict}: {report.evidence}"
