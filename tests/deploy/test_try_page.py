"""The page in a browser: what a reader sees is what the service answers."""

import asyncio
import contextlib
import socket
import threading

import pytest
from granian.server.embed import Server
from service_samples import CLASSES, HOSTILE, model, table

from demur.deploy import create_app
from demur.tabular import evaluate_table, write_report

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def running(application):
    """Serve an application at a free port of this machine, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    loop = asyncio.new_event_loop()
    server = Server(application, port=port, interface="asginl", websockets=False, log_enabled=False)

    def serve():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.serve())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join()
        loop.close()


@pytest.fixture
def visit(browser):
    """Open the page of a model; afterwards nothing may have gone wrong or been fetched from elsewhere."""
    complaints, requests = [], []
    with contextlib.ExitStack() as stack:

        def open_page(served, width=1200, report=None):
            address = stack.enter_context(running(create_app(served, report=report)))
            page = stack.enter_context(contextlib.closing(browser.new_page(viewport={"width": width, "height": 800})))
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(address if report is None else f"{address}/report")
            return page

        yield open_page
    assert complaints == []
    assert all(url.startswith(("http://127.0.0.1:", "data:")) for url in requests)


def fill(page, row):
    """Fill the form with a row of the table."""
    for number, name in enumerate(model().schema.names):
        value, field = row[name], f"#field-{number}"
        if value is None:
            continue
        if page.eval_on_selector(field, "element => element.tagName") == "SELECT":
            page.select_option(field, str(value).lower() if isinstance(value, bool) else str(value))
        elif hasattr(value, "date"):
            page.fill(field, value.date().isoformat())
            page.fill(f"{field} + input", value.time().isoformat())
        else:
            page.fill(field, value.isoformat() if hasattr(value, "isoformat") else repr(value))


def shown(page, *words):
    """Wait until the decision holds all these words, and return it."""
    page.wait_for_function(
        "words => (t => words.every(w => t.includes(w)))(decision.innerText.replaceAll('\\u00a0', ' '))",
        arg=list(words),
        timeout=10_000,
    )
    return page.inner_text("#decision")


@pytest.mark.parametrize("number", [0, 4, 7])
def test_the_decision_in_words_is_that_of_the_model(visit, number):
    page = visit(model())
    rows = table().slice(number, 1)
    fill(page, rows.to_pylist()[0])
    for cost in (0.2, 0.01, 0.45):
        page.fill("#cost-number", str(cost))
        answer = model().answers(rows, cost).to_pylist()[0]
        sure, second = f"{100 * answer['confidence']:.1f} % sure", f"Second choice: {answer['second_choice']}."
        text = shown(page, f"At cost {cost} ", sure, second)
        assert text.startswith("No answer: the model declines" if answer["rejected"] else answer["prediction"])
    command = page.inner_text("#command")
    assert command.startswith("curl http://127.0.0.1:")
    assert '"cost":0.45' in command


def test_the_page_starts_without_a_decision_and_can_be_cleared(visit):
    page = visit(model())
    assert shown(page, "Fill in").startswith("Fill in the known values")
    page.fill("#field-0", "1")
    shown(page, "sure")
    page.click("#clear")
    shown(page, "Fill in the known values")


def test_an_example_is_filled_in_and_explained(visit):
    page = visit(model())
    for name in model().classes.tolist():
        page.click("#example")
        shown(page, name)
        example = model().examples[model().classes.tolist().index(name)]
        assert float(page.input_value("#field-0")) == pytest.approx(example["size"], abs=1e-4)
    assert page.locator("#nearest dt").count() == 3
    low, high = model().ranges[0].split(" to ")
    assert f"{low} to {high}" in page.inner_text("label[for=field-0]")
    page.fill("#cost-number", "0.001")
    shown(page, "No answer")
    assert page.locator("#because li").count() >= 1


def test_hostile_names_stay_text(visit):
    page = visit(model())
    assert page.inner_text("label[for=field-1]") == HOSTILE
    page.select_option("#field-1", "<i>newt</i>")
    page.fill("#field-0", "3")
    page.fill("#cost-number", "0.45")
    shown(page, CLASSES[1])
    assert page.evaluate("document.querySelectorAll('b, i, iframe, main script').length") == 0


def test_the_keyboard_is_enough(visit):
    page = visit(model())
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.id") != "field-0":
        page.keyboard.press("Tab")
    page.keyboard.type("2.5")
    page.keyboard.press("Enter")
    shown(page, "At cost 0.2 ")
    page.focus("#cost-slider")
    page.keyboard.press("ArrowRight")
    shown(page, "At cost 0.205 ")
    assert page.input_value("#cost-number") == "0.205"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_every_control_has_a_name_and_a_phone_needs_no_sideways_scrolling(visit):
    page = visit(model(), width=360)
    unnamed = "[...document.querySelectorAll('input, select')].filter(i => !i.labels.length && !i.ariaLabel).length"
    assert page.evaluate(unnamed) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.get_attribute("#decision", "aria-live") == "polite"


def test_a_novel_row_is_said_to_be_one(visit):
    page = visit(model())
    page.fill("#field-0", "1e9")
    assert "Unusual values" in shown(page, "unlike the training rows")


@pytest.mark.parametrize("height", [844, 420])  # the second is what a keyboard on the screen leaves
def test_on_a_phone_the_decision_does_not_cover_the_form(visit, height):
    page = visit(model(), width=390)
    page.set_viewport_size({"width": 390, "height": height})
    on_top = """input => {
        const box = input.getBoundingClientRect();
        const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        return found === input;
    }"""
    for field in page.query_selector_all("#form input, #form select, #cost-slider, #cost-number"):
        field.focus()
        assert field.evaluate(on_top)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_the_light_and_in_the_dark(visit, least_contrast, scheme):
    page = visit(model())
    page.emulate_media(color_scheme=scheme)
    contrast, *which = least_contrast(page, "h1, .quiet, label, .field input, select, button, a, #headline, code")
    assert contrast >= 4.5, which
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_fixed_cost_has_no_slider(visit):
    page = visit(model("ova+hin"))
    assert page.query_selector("#cost-slider") is None
    assert "trained for the cost 0.2" in page.inner_text("aside")
    page.fill("#field-0", "1")
    assert "core " in shown(page, "econd choice")


def test_the_report_works_under_its_policy(visit, tmp_path):
    report = write_report(evaluate_table(model(), table()), tmp_path / "report.html", title="Report")
    page = visit(model(), report=report)
    assert page.eval_on_selector("body", "body => getComputedStyle(body).margin") != "8px"  # its style is there
    before = page.inner_text("#headline")
    page.fill("#cost-number", "0.02")
    page.wait_for_function("before => document.getElementById('headline').innerText !== before", arg=before)


def test_a_forged_report_runs_no_handler_and_loads_nothing(browser, tmp_path):
    forged = """<h1 id="done">x</h1><img src="/health" onerror="document.title = 'handler'">
    <script src="/openapi.json"></script><script>fetch("/health").catch(() => done.innerText = "refused")</script>"""
    (tmp_path / "report.html").write_text(forged)
    answers = []
    with running(create_app(model(), report=tmp_path / "report.html")) as address:
        page = browser.new_page()
        page.on("response", lambda response: answers.append(response.url))
        page.goto(f"{address}/report")
        page.wait_for_function("document.getElementById('done').innerText === 'refused'")
        assert page.title() != "handler"
        page.close()
    assert {url.rpartition("/")[2] for url in answers} <= {"report", "favicon.ico"}
