"""The report in a browser: what a reader sees after moving the cost is what Python computes at that cost."""

import numpy as np
import pyarrow as pa
import pytest
from report_samples import HOSTILE, fixed, free

from demur.metrics import accepted_accuracy, coverage, zero_one_c_risk
from demur.tabular import evaluate_table, fit_table, write_report
from demur.tabular.evaluation_figures import per_hundred, percent
from demur.tabular.html_report import risk_coverage_chart

pytestmark = pytest.mark.slow


@pytest.fixture
def visit(browser, tmp_path):
    """Open the report of an evaluation; afterwards nothing may have gone wrong or been fetched."""
    complaints, requests, pages = [], [], []

    def dismissed(dialog):
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def complained(message):
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def open_page(evaluation, width=1200, title="Report"):
        path = write_report(evaluation, tmp_path / f"report-{len(pages)}.html", title=title)
        page = browser.new_page(viewport={"width": width, "height": 800})
        pages.append(page)
        page.on("console", complained)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", dismissed)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []
    assert requests
    assert all(url.startswith("file:") for url in requests)


def text_of(page, selector):
    return page.inner_text(selector).replace("\xa0", " ")


def assert_shows(page, evaluation):
    """Compare the moving texts of the page with the metrics of the same decisions."""
    cost, n_classes = evaluation.cost, len(evaluation.class_names)
    answers = evaluation.decision.labels(range(n_classes))
    assert text_of(page, "#risk") == per_hundred(zero_one_c_risk(evaluation.true, answers, cost=cost))
    assert text_of(page, "#coverage") == percent(coverage(answers))
    assert text_of(page, "#accepted_accuracy") == percent(accepted_accuracy(evaluation.true, answers))
    assert text_of(page, "#headline") == evaluation.sentences()[0]


def marker(page, name):
    """Return where the marker of a chart lies; None where it is hidden."""
    return page.evaluate(
        """name => {
          const group = document.querySelector(`#${name} .marker`);
          const circle = group.querySelector('circle');
          return group.getAttribute('visibility') === 'hidden'
            ? null : ['cx', 'cy'].map(at => Number(circle.getAttribute(at)));
        }""",
        name,
    )


def test_the_number_field_moves_every_figure(visit):
    evaluation = free(unknown=(30, 40, 41))
    page = visit(evaluation)
    assert_shows(page, evaluation)
    chart = risk_coverage_chart(evaluation)
    for cost in (0.0, 0.005, 0.1, 0.25, 0.495):  # 0.25 is a tie for twenty rows
        page.fill("#cost-number", str(cost))
        moved = evaluation.at(cost)
        assert_shows(page, moved)
        assert page.get_attribute("#cost-slider", "aria-valuetext") == f"{cost:g}"
        assert marker(page, "risk-coverage") == chart.place(moved.coverage, 1 - moved.accepted_accuracy)
    page.click("#cost-reset")
    assert_shows(page, evaluation)


def test_the_keyboard_moves_the_slider(visit):
    evaluation = free(cost=0.1234)
    page = visit(evaluation)
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "cost-slider":
            break
    assert page.evaluate("document.activeElement.id") == "cost-slider"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert_shows(page, evaluation)  # a cost between the steps has a place of its own
    for key, cost in (("ArrowRight", 0.125), ("ArrowRight", 0.13), ("ArrowLeft", 0.125), ("Home", 0.0)):
        page.keyboard.press(key)
        assert page.input_value("#cost-number") == f"{cost:g}"
        assert_shows(page, evaluation.at(cost))
    page.keyboard.press("End")
    assert page.input_value("#cost-number") == "0.5"


def test_a_typed_cost_goes_to_the_nearest_step_and_invalid_text_is_ignored(visit):
    evaluation = free()
    page = visit(evaluation)
    page.fill("#cost-number", "0.1012")
    assert_shows(page, evaluation.at(0.1))
    page.keyboard.press("Tab")
    assert page.input_value("#cost-number") == "0.1"
    for nonsense in ("", "7", "-1"):
        page.fill("#cost-number", nonsense)
        page.keyboard.press("Tab")
        assert page.input_value("#cost-number") == "0.1"
    assert_shows(page, evaluation.at(0.1))


def test_intervals_follow_the_cost(visit):
    evaluation = free()
    page = visit(evaluation)
    start = text_of(page, "#risk-interval")
    assert start.startswith("95 % interval ")
    page.fill("#cost-number", "0.05")
    moved = text_of(page, "#risk-interval")
    assert moved != start
    page.reload()
    assert text_of(page, "#risk-interval") == start


def test_hostile_names_stay_text(visit):
    evaluation = free(classes=HOSTILE, unknown=(5,))
    page = visit(evaluation, title=HOSTILE[2])
    page.fill("#cost-number", "0.1")
    assert_shows(page, evaluation.at(0.1))
    assert page.inner_text("h1") == HOSTILE[2]
    assert page.inner_text("#by-class tbody tr:nth-child(1) th") == HOSTILE[0]
    assert page.get_attribute("#by-class tbody tr:nth-child(6) th span", "title") == HOSTILE[5]
    assert page.evaluate("document.querySelectorAll('img, b, iframe, script').length") == 2  # the page's own scripts
    assert page.evaluate("[...document.querySelectorAll('*')].some(e => e.hasAttribute('onerror'))") is False


@pytest.mark.parametrize("sample", ["free", "many classes", "fixed"])
def test_a_phone_needs_no_sideways_scrolling(visit, sample):
    many = tuple(f"a rather long class name, number {k}" for k in range(40))
    evaluation = {"free": free, "many classes": lambda: free(classes=many), "fixed": fixed}[sample]()
    page = visit(evaluation, width=360)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if sample == "many classes":  # the table itself scrolls within its box
        assert page.eval_on_selector("#confusion", "table => table.offsetWidth > table.parentElement.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_charts_and_shades_can_be_read_in_the_light_and_in_the_dark(visit, least_contrast, scheme):
    page = visit(free())
    page.emulate_media(color_scheme=scheme)
    contrast, *which = least_contrast(page, "h1, h2, p, th, td, dt, dd, label, button:enabled, figcaption, .chart text")
    assert contrast >= 4.5, which
    stroke = "getComputedStyle(document.querySelector('.line.model')).stroke"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(stroke) != page.evaluate(paper)


def test_paper_is_white_and_small_tables_stay_whole(visit):
    page = visit(free())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    broken = "[...document.querySelectorAll('.box')].map(box => getComputedStyle(box).breakInside)"
    assert {one for one in page.evaluate(broken) if one == "auto"} == set()
    assert not page.is_visible(".control")


def test_a_fixed_cost_has_no_slider(visit):
    evaluation = fixed()
    page = visit(evaluation)
    assert page.query_selector("input") is None
    assert "another cost needs another model" in text_of(page, "body")
    assert_shows(page, evaluation)


def test_tables_and_controls_have_names(visit):
    page = visit(free())
    unnamed = page.evaluate(
        """() => [
          ...[...document.querySelectorAll('table')].filter(t => !t.caption || !t.caption.textContent.trim()),
          ...[...document.querySelectorAll('th')].filter(h => !h.scope),
          ...[...document.querySelectorAll('input')].filter(i => !i.labels.length && !i.ariaLabel),
          ...[...document.querySelectorAll('svg[role=img]')].filter(s => !s.querySelector('title')),
        ].map(e => e.outerHTML.slice(0, 100))"""
    )
    assert unnamed == []
    assert page.get_attribute("#headline", "aria-live") == "polite"


def asked_model(n=400):
    """Return a fitted model that asks, and labelled rows with most of the experts' answers."""
    rng = np.random.default_rng(0)

    def draw(rows):
        x = rng.normal(size=(rows, 2))
        y = (rng.random(rows) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
        nurse = np.where(rng.random(rows) < 1 / (1 + np.exp(-3 * x[:, 1])), y, 1 - y)
        chief = np.where(rng.random(rows) < 0.95, y, 1 - y)
        said = {"nurse": pa.array(nurse, mask=rng.random(rows) < 0.2), "<b>chief": pa.array(chief)}
        return pa.table({"a": x[:, 0], "b": x[:, 1], **said, "y": y})

    asked = {"nurse": ("nurse", 0.05), "the <b>chief": ("<b>chief", 0.2123)}
    return fit_table(draw(n), "y", model="lr", experts=asked), draw(300)


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_about_experts_fits_and_has_a_line_for_each(visit, width):
    model, rows = asked_model()
    judged = evaluate_table(model, rows)
    page = visit(judged, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert text_of(page, "#headline") == judged.headline()
    lines = page.locator("#experts tbody tr").all()
    assert len(lines) == 3
    for one, line in zip(judged.asking.experts, lines[1:], strict=True):
        cells = [text.replace("\N{NO-BREAK SPACE}", " ") for text in line.locator("td.number").all_inner_texts()]
        assert [*cells[:2], *cells[3:]] == [
            str(one.n_asked),
            percent(one.load.estimate),
            percent(one.right_when_asked.estimate),
            per_hundred(one.risk_if_always_asked.estimate),
        ]
