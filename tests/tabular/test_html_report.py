"""The page: one file, nothing from outside, data never becomes markup, and it is written whole or not at all."""

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from report_samples import HOSTILE, by_matrix, fixed, free

from demur import Chow, CostMatrix, RiskControl, Threshold
from demur.metrics import Interval
from demur.tabular import Evaluation, report_html, write_report
from demur.tabular.evaluation_figures import matrix_words
from demur.tabular.html_report import shown_confusion


class Page(HTMLParser):
    """Collects tags, attributes, the text outside scripts, and the scripts."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.text, self.raw, self.inside = [], [], [], {"script": [], "style": []}, None
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        self.raw.get(self.inside, self.text).append(data)


@pytest.fixture(scope="module")
def hostile():
    evaluation = free(classes=HOSTILE, unknown=(5,))
    return report_html(evaluation, HOSTILE[0], made={HOSTILE[1]: HOSTILE[2]})


def test_names_from_data_stay_text(hostile):
    page = Page(hostile)
    assert page.tags.count("script") == 2  # the data and our own script
    assert "img" not in page.tags
    assert "b" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    text = "".join(page.text)
    for name in HOSTILE[:3]:
        assert name in text
    assert "{{ 7 * 7 }}" in text
    hostile.encode("utf-8")  # no half of a surrogate pair is left


def test_the_policy_allows_our_own_script_and_style_only(hostile):
    page = Page(hostile)
    policy = re.search(r'Security-Policy" content="([^"]+)"', hostile)[1]
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, sources in (("style", page.raw["style"]), ("script", page.raw["script"][-1:])):
        digest = base64.b64encode(hashlib.sha256("".join(sources).encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not [value for name, value in page.attributes if name in ("style", "src", "href")]


def test_the_data_in_the_page_are_json_without_names(hostile):
    source = Page(hostile).raw["script"][0]
    assert "<" not in source
    assert set(json.loads(source)) == {"costs", "states"}
    assert "alert" not in source


def test_equal_evaluations_give_equal_pages():
    free.cache_clear()
    first = report_html(free(n_rows=40), "a")
    free.cache_clear()
    assert report_html(free(n_rows=40), "a") == first


def test_a_fixed_cost_says_why_and_needs_no_script():
    page = Page(report_html(fixed(), "Fixed"))
    text = " ".join("".join(page.text).split())
    assert "script" not in page.tags
    assert "input" not in page.tags
    assert "trained for a cost of 0.15 and gives no probabilities, so another cost needs another model" in text
    assert "its calibration cannot be checked" in text
    proba = [[0.9, 0.1], [0.4, 0.6]]
    decision = CostMatrix([[0, 1, 0.3], [1, 0, 0.3]]).decide(proba)
    other = report_html(Evaluation.of([0, 1], decision, classes=[0, 1], cost=0.3, proba=proba), "Rule")
    assert "the rule does not use one" in other


def test_it_stays_small_however_many_rows():
    evaluation = free(n_rows=100_000, classes=tuple(f"class {k}" for k in range(26)), sharpness=0.1)
    object.__setattr__(evaluation, "figures", free().figures)  # a cached property; its resampling is not at stake
    page = report_html(evaluation, "Large")
    assert len(page.encode()) < 300_000
    for line in re.findall(r' d="M([^"]+)"', page):
        assert line.count("L") < 400


@pytest.mark.parametrize(
    "evaluation",
    [
        Evaluation.of([0], Chow(0.2).decide([[0.5, 0.5]]), classes=[0, 1], cost=0.2),
        Evaluation.of([0], Chow(0.2).decide([[1.0, 0.0]]), classes=[0, 1], cost=0.2, proba=[[1.0, 0.0]]),
        free(n_rows=30, cost=0.0),
        free(n_rows=25, cost=0.4999),
    ],
    ids=["nothing answered", "one row, right", "cost zero", "large cost"],
)
def test_degenerate_evaluations_have_a_page(evaluation):
    text = "".join(Page(report_html(evaluation, "Small")).text)
    assert evaluation.sentences()[0] in text.replace("\xa0", " ")
    assert "nan" not in text
    if evaluation.counts.n_rejected == 0:
        assert "No row was declined." in text


def test_of_many_classes_those_most_often_mistaken_are_shown():
    evaluation = free(n_rows=2000, classes=tuple(f"class {k}" for k in range(60)), unknown=(30, 31), sharpness=0.05)
    shown = shown_confusion(evaluation)
    assert shown["counts"].shape == (21, 21)  # twenty, and labels that are no class; or declined
    assert evaluation.confusion[-1].sum() == 2
    named = [evaluation.class_names.index(name) for name in shown["rows"][:20]]
    np.testing.assert_array_equal(shown["counts"], evaluation.confusion[np.ix_([*named, 60], [*named, 60])])
    mistakes = np.bincount([*evaluation.true[evaluation.wrong], *evaluation.decision.label[evaluation.wrong]])[:60]
    assert mistakes[named].min() >= np.delete(mistakes, named).max()


def test_writing_is_careful(tmp_path):
    path = tmp_path / "report.html"
    assert write_report(fixed(), path, title="One") == path
    with pytest.raises(FileExistsError, match="exists already"):
        write_report(fixed(), path, title="Two")
    assert "<h1>One</h1>" in path.read_text(encoding="utf-8")
    write_report(fixed(), str(path), title="Two", overwrite=True)
    assert "<h1>Two</h1>" in path.read_text(encoding="utf-8")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_report(fixed(), tmp_path, title="Three")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_missing_template_engine_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install demur\[report\]"):
        report_html(fixed(), "None")


def test_decisions_by_a_rule_are_not_scored_at_a_default_cost():
    proba = [[0.9, 0.1], [0.4, 0.6]]
    rule = Threshold(0.7)
    judged = Evaluation.of([0, 1], rule.decide(proba), classes=[0, 1], proba=proba, explanation=rule.explain())
    page = report_html(judged, "Rule")
    assert rule.explain() in page
    assert "Cost per 100 rows" not in page
    assert "At cost" not in page
    found = judged.to_json()
    assert found["cost"] is None
    assert "risk" not in found["figures"]
    assert found["sentences"] == [
        "The model answers 50.0 % of the rows, 100.0 % of those correctly, and declines 50.0 %.",
        rule.explain(),
    ]


def test_the_cost_by_the_matrix_comes_first_on_the_page():
    judged = by_matrix()
    page = Page(report_html(judged, "Matrix"))
    text = " ".join("".join(page.text).split()).replace("\xa0", " ")
    headline = judged.headline()
    assert headline.startswith("By its cost matrix, the model answers ")
    assert headline in text
    tile = text.index("Cost of 100 rows by the cost matrix")
    assert tile < text.index("Rows answered by the model") < text.index("Correct among its answers")
    found = judged.figures["mean_cost"]
    assert f"95 % interval {matrix_words(found.low)} to {matrix_words(found.high)}" in text[tile:]
    figures = text[text.index("All figures") :]
    assert figures.index("Mean cost") < figures.index("Coverage")
    assert "At cost" not in text


def test_the_page_says_guarantees_and_rows_left_out():
    proba, y = [[0.9, 0.1]] * 60, [0] * 30 + [1] * 30
    judged = Evaluation.of(
        y, Threshold(0.5).decide(proba), classes=[0, 1], proba=proba, rule=RiskControl(0.1), n_unlabelled=3
    )
    text = " ".join("".join(Page(report_html(judged, "Guarantee")).text).split()).replace("\xa0", " ")
    assert "Guaranteed: at most 10.0 % of the answers wrong. Observed: 50.0 % of 60. The guarantee is broken" in text
    assert "3 rows have no label and are left out." in text


def test_groups_have_a_table():
    proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    judged = Evaluation.of(
        ["a", "a", "b"],
        Chow(0.3).decide(proba),
        classes=["a", "b"],
        cost=0.3,
        proba=proba,
        group="site",
        group_of_row=["<north>", "south", None],
    )
    page = report_html(judged, "R")
    assert "Group by group" in page
    assert "&lt;north&gt;" in page
    assert "<north>" not in page


def test_an_importance_that_rounds_to_zero_has_no_sign():
    page = report_html(replace(free(), importances={"z": Interval(-0.0001, -0.01, 0.01, 0.95)}), "t")
    cells = re.findall(r'<td class="number[^"]*">([^<]*)</td>', page[page.index('id="importances"') :])
    assert cells[:2] == ["0.0", "-1.0 to 1.0"]
