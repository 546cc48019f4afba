"""The report in a browser: what a reader sees after moving the cost is what Python computes at that cost."""

import shutil

import pytest
from report_samples import HOSTILE, fixed, free

from demur.metrics import accepted_accuracy, coverage, zero_one_c_risk
from demur.tabular import write_report

sync_api = pytest.importorskip("playwright.sync_api")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome; install one to run these tests"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield running
        running.close()


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


def number(page, name):
    return float(page.get_attribute(f"#{name}", "value"))


def text_of(page, selector):
    return page.inner_text(selector).replace("\xa0", " ")


def assert_shows(page, evaluation):
    """Compare every moving part of the page with the metrics of the same decisions."""
    cost, n_classes = evaluation.cost, len(evaluation.class_names)
    answers = evaluation.decision.labels(range(n_classes))
    assert number(page, "risk") == pytest.approx(zero_one_c_risk(evaluation.true, answers, cost=cost), abs=1e-12)
    assert number(page, "risk") == evaluation.risk
    assert number(page, "coverage") == coverage(answers)
    right = accepted_accuracy(evaluation.true, answers)
    assert number(page, "accuracy") == pytest.approx(right, abs=1e-15, nan_ok=True)
    assert text_of(page, "#headline") == evaluation.sentences()[0]
    table = page.eval_on_selector_all(
        "#by-class tbody tr", "rows => rows.map(r => [...r.querySelectorAll('data')].map(d => Number(d.value)))"
    )
    for found, one in zip(table, evaluation.by_class, strict=True):
        expected = [one.n_rejected, one.rejection_rate, one.accepted_accuracy, one.precision, one.recall]
        assert found == pytest.approx(expected, abs=1e-15, nan_ok=True)
    bars = page.eval_on_selector_all("#by-class .front", "bars => bars.map(b => Number(b.getAttribute('width')))")
    assert bars == pytest.approx([100 * one.rejection_rate for one in evaluation.by_class])
    counts = page.eval_on_selector_all(
        "#confusion tbody tr",
        "rows => rows.map(r => [...r.querySelectorAll('td')].map(c => Number(c.textContent.replace(/,/g, ''))))",
    )
    assert counts == evaluation.confusion.tolist()


def marker(page, name):
    """Return where the marker of a chart lies, as shares of the axes; None where it is hidden."""
    return page.evaluate(
        """name => {
          const [group, axes] = [document.querySelector(`#${name} .marker`),
                                 JSON.parse(document.getElementById('data').textContent).axes[name]];
          if (group.getAttribute('visibility') === 'hidden') return null;
          const circle = group.querySelector('circle');
          return [['cx', axes.x], ['cy', axes.y]].map(([at, [high, start, end]]) =>
            high * (Number(circle.getAttribute(at)) - start) / (end - start));
        }""",
        name,
    )


def test_the_number_field_moves_every_figure(visit):
    evaluation = free(unknown=(30, 40, 41))
    page = visit(evaluation)
    assert_shows(page, evaluation)
    for cost in (0.0, 0.005, 0.1, 0.25, 0.495):  # 0.25 is a tie for twenty rows
        page.fill("#cost-number", str(cost))
        moved = evaluation.at(cost)
        assert_shows(page, moved)
        assert page.get_attribute("#cost-slider", "aria-valuetext") == f"{cost:g}"
        assert marker(page, "cost-curve") == pytest.approx([cost, moved.risk], abs=1e-3)
        if moved.counts.n_answered:
            assert marker(page, "risk-coverage") == pytest.approx([moved.coverage, 1 - moved.accepted_accuracy])
        else:
            assert marker(page, "risk-coverage") is None
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


def test_a_number_off_the_grid_goes_to_the_nearest_and_nonsense_to_the_last(visit):
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
