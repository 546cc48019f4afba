"""What all tests share: one thread for each process, since two processes share two cores; data folders; the browser."""

import gc
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("demur", deadline=None, derandomize=True, max_examples=20)
settings.load_profile("demur")


def pytest_collection_finish():
    """Prepare a process that runs tests; one that only distributes them needs no torch."""
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # what was imported and collected stays: no later collection of garbage has to visit it


AROUND_A_MODEL = {"cli", "deploy", "tabular"}
"""What these folders test holds for a network however well it is trained."""


@pytest.fixture(autouse=True, scope="module")
def _short_training(request):
    if request.path.relative_to(Path(__file__).parent).parts[0] not in AROUND_A_MODEL:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("demur.estimators.network_selection._MOST_EPOCHS", 12)
        patch.setattr("demur.estimators.network_selection._FEWEST_EPOCHS", 4)
        patch.setattr("demur.estimators.reject_classifier.EPOCHS", 12)
        yield


_SHARED = Path(__file__).parents[2] / "shared"
"""Data that are not part of the repository; DEMUR_DATA and DEMUR_PUBLISHED name other folders."""


def _folder(variable, name):
    path = Path(os.environ.get(variable, _SHARED / name))
    if not path.is_dir():
        pytest.skip(f"there is no folder {path}; set {variable}")
    return path


@pytest.fixture(scope="session")
def data_folder():
    """Return the folder with the paper's data sets, and with the stored answers in its folder deferral."""
    return _folder("DEMUR_DATA", "data")


@pytest.fixture(scope="session")
def published_folder():
    """Return the folder with the paper's tables as CSV."""
    return _folder("DEMUR_PUBLISHED", "paper")


_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    if _BROWSER is None:
        pytest.skip("needs Chromium or Chrome; install one to run these tests")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=_BROWSER, args=_ARGUMENTS)
        yield running
        running.close()


_LEAST_CONTRAST = """selector => {
    const light = color => {
        const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = one => {
        for (; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (!/, 0\\)$|transparent/.test(color)) return color;
        }
        return "rgb(255, 255, 255)";
    };
    const worst = [...document.querySelectorAll(selector)].map(one => {
        const style = getComputedStyle(one);
        const [a, b] = [light(one instanceof SVGElement ? style.fill : style.color), light(behind(one))]
            .sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), one.className.baseVal || one.className, one.textContent];
    });
    return worst.sort((x, y) => x[0] - y[0])[0];
}"""


@pytest.fixture(scope="session")
def least_contrast():
    """Find the text of a page, among what a selector names, that stands out least from what is behind it."""
    return lambda page, selector: page.evaluate(_LEAST_CONTRAST, selector)
