"""What is committed under results/paper, and what the documentation says of it, follow from the records."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from demur.paper import pages
from demur.paper.experiments import EXPERIMENTS, published_benchmark
from demur.paper.records import Store
from demur.paper.trial_jobs import matching
from demur.paper.trial_means import DEVIATIONS, agreement, collect, find_published

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "paper"
NEAREST = ROOT / "results" / "published"
PAGE = (ROOT / "docs" / "reproduction.md").read_text()
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not part of this copy")
METHODS = [method.name for method in EXPERIMENTS["benchmark"].methods]


def draw_again(out, published_folder):
    shutil.copytree(RESULTS / "records", out / "records")
    return pages.write_outputs(out, list(EXPERIMENTS.values()), find_published(published_folder))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, published_folder):
    """Everything but the figures, drawn again: the folder, and the outcome."""
    folder = tmp_path_factory.mktemp("drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "draw_figures", lambda *results: {})
        return folder, draw_again(folder, published_folder)


def test_results_drawn_again_from_the_packed_records_are_identical(drawn):
    for name in ("README.md", "tables.md", "benchmark.csv", "synthetic.csv"):
        assert (drawn[0] / name).read_text() == (RESULTS / name).read_text(), name


@pytest.mark.slow
def test_figures_drawn_again_from_the_packed_records_are_identical(tmp_path, published_folder):
    pytest.importorskip("matplotlib")
    draw_again(tmp_path, published_folder)
    figures = sorted((RESULTS / "figures").iterdir())
    assert len(figures) == 6
    for path in figures:
        assert (tmp_path / "figures" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_records_are_one_file_of_lines_per_experiment():
    assert sorted(path.name for path in (RESULTS / "records").iterdir()) == ["benchmark.jsonl", "synthetic.jsonl"]
    for name, n_records in (("benchmark", 55), ("synthetic", 4 * 90)):
        store = Store(RESULTS, name)
        assert len(list(store.records())) == n_records
        assert not store.damaged


def test_the_learning_rate_of_the_synthetic_experiment_is_the_best_on_validation_rows():
    risks = {}
    for record in Store(RESULTS, "synthetic").records():
        rate = record.spec["protocol"]["learning_rate"]
        risks.setdefault(rate, []).extend(score.validation_risk for score in record.scores)
    means = {rate: sum(values) / len(values) for rate, values in risks.items()}
    assert sorted(means) == [0.001, 0.003, 0.01, 0.03]
    assert min(means, key=means.get) == EXPERIMENTS["synthetic"].protocol.learning_rate


def test_the_published_protocol_agrees_as_often_as_was_asked_and_its_pages_are_drawn_again(
    tmp_path, monkeypatch, published_folder
):
    monkeypatch.setattr(pages, "draw_figures", lambda *results: {})
    shutil.copytree(NEAREST / "records", tmp_path / "records")
    outcome = pages.write_outputs(tmp_path, [published_benchmark()], find_published(published_folder))
    assert not outcome.benchmark.missing
    for name in ("README.md", "tables.md", "benchmark.csv"):
        assert (tmp_path / name).read_text() == (NEAREST / name).read_text(), name
    numbers, printed = outcome.benchmark.numbers(METHODS), outcome.published.benchmark
    found = agreement(numbers, printed)
    assert found.within["zoc_risk"] >= 140
    assert found.within["rejection_ratio"] >= 90
    assert found.within["accepted_accuracy"] >= 110


@pytest.mark.parametrize(("folder", "experiment"), [("paper", EXPERIMENTS["benchmark"]), ("published", None)])
def test_the_page_on_the_protocol_counts_as_the_records_do(folder, experiment, published_folder):
    experiment = experiment or published_benchmark()
    results = collect(experiment, matching(experiment, Store(ROOT / "results" / folder, "benchmark")))
    found = agreement(results.numbers(METHODS), find_published(published_folder).benchmark)
    (line,) = [
        line for line in (ROOT / "docs" / "protocol.md").read_text().splitlines() if f"(`results/{folder}`)" in line
    ]
    metrics = ("zoc_risk", "rejection_ratio", "accepted_accuracy")
    for metric in metrics:
        assert f" {found.within[metric]} of {found.of[metric]} |" in line
    share = sum(found.within.values()) / sum(found.of.values())
    assert f" {share:.0%} |".replace("%", " %") in line


@pytest.fixture(scope="module")
def cells():
    """All figures of the committed tables: (metric, data set, cost, method) to (mean, published mean and deviation)."""
    found = {}
    for name in ("benchmark.csv", "synthetic.csv"):
        with (RESULTS / name).open(newline="") as file:
            for row in csv.DictReader(file):
                figures = tuple(float(row[key] or "nan") for key in ("mean", "published_mean", "published_std"))
                found[row["metric"], row["dataset"], row["cost"], row["method"]] = figures
    return found


def annotations(kind):
    """Return the sentences of the page that carry a comment of a kind: (what is said, words of the comment)."""
    found = re.finditer(f"<!-- {kind} ([^>]*) -->", PAGE)
    return [(PAGE[max(0, match.start() - 60) : match.start()], match[1].split()) for match in found]


def test_every_figure_that_the_page_quotes_from_the_results_is_theirs(cells):
    quoted = re.findall(r"(\d+(?:\.\d+)?)( %)?<!-- (published )?([a-z]+_[a-z]+) (\S+) (\S+) (\S+) -->", PAGE)
    assert len(quoted) > 25
    for text, percent, published, *cell in quoted:
        mean = cells[tuple(cell)][1 if published else 0] * (100 if percent else 1)
        digits = len(text.partition(".")[2])
        assert float(text) == pytest.approx(round(mean, digits), abs=1e-9), (text, cell)


def above(cells, problem, method, deviations):
    """Return the costs at which our risk, at the paper's three decimals, is above the published one."""
    costs = []
    for (metric, dataset, cost, name), (mean, paper, std) in cells.items():
        if (metric, dataset, name) == ("zoc_risk", problem, method) and round(
            mean, 3
        ) > paper + deviations * std + 1e-9:
            costs.append(cost)
    return costs


def test_the_page_names_the_cells_that_lie_outside(cells):
    outside = annotations("outside")
    assert len(outside) == 3
    for said, (method, problem, *costs) in outside:
        assert above(cells, problem, method, DEVIATIONS) == costs, said
        assert re.findall(r"0\.\d+", said)[-len(costs) :] == costs
    ((said, (method, problem, *costs)),) = annotations("above")
    assert above(cells, problem, method, 0) == costs
    assert re.findall(r"0\.\d+", said)[-len(costs) :] == costs
    ((said, (problem, cost)),) = annotations("within")
    inside = [method for method in METHODS if cost not in above(cells, problem, method, DEVIATIONS)]
    assert said.endswith(f"all methods but {', '.join(inside)}")


def test_counts_in_the_documentation_are_those_of_the_results(drawn):
    statement = "CE is the best or equivalent to the best, on every data set at every cost"
    best = next(one.ours for one in drawn[1].claims if one.claim.statement == statement)
    text = " ".join((ROOT / "docs" / "explanation" / "why_cross_entropy.md").read_text().split())
    assert f"in {best.counts} cells" in text
    assert "22 of 25" not in PAGE  # counts come from the included page, not from a copy of it


def test_the_page_includes_its_counts_from_the_results():
    readme = (RESULTS / "README.md").read_text()
    start, end = re.search(r':start-after: "(.*?)"\n:end-before: "(.*?)"', PAGE).groups()
    included = readme[readme.index(start) + len(start) : readme.index(end)]
    assert "at or below the published one in" in included
    assert "The paper's statements" in included


def test_statements_are_counted_in_english():
    line = next(line for line in (RESULTS / "README.md").read_text().splitlines() if "The paper's statements**" in line)
    assert re.search(r": \d+ hold, \d+ mostly hold, \d+ mostly fail\.$", line)
