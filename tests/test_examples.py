"""Every example runs, and what it prints is what it was written to show."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOSSES = "recent_rejection_losses"  # functions to check, which tests/theory does
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != LOSSES)


def percentages(text):
    return [float(found) / 100 for found in re.findall(r"([\d.]+)%", text)]


def answers_most_and_nearly_all_rightly(text):
    answered, right = percentages(text)[:2]
    assert 0.7 < answered < 1
    assert right > 0.98


def any_sklearn_model(text):
    rows = [[float(value) for value in line.split()[1:]] for line in text.splitlines()[1:]]
    assert len(rows) == 5
    for always, _, calibrated in rows:
        assert calibrated < always
    assert all(calibrated < 0.1 for *_, calibrated in rows)  # declining everything costs 0.1


def check_a_loss(text):
    assert re.search(r"^cross_entropy: (no counterexample found|calibrated)", text, re.MULTILINE)
    assert "focal: refuted" in text
    assert "false_reject" in text


def deferral(text):
    alone, together = percentages(text)[:2]
    assert together > alone + 0.05
    consultant = [percentages(line)[2] for line in text.splitlines()[1:]]
    assert consultant[1] < consultant[0]
    assert consultant[2] == pytest.approx(40 / 899, abs=1e-3)


def ensemble_and_cost_curve(text):
    one, ten = (float(line.split()[-1]) for line in text.splitlines()[1:3])
    assert ten < one


def guarantee(text):
    assert "at most 0.02 of the answers given are wrong" in text
    answered, wrong = percentages(text[text.index("test images") :])[:2]
    assert answered > 0.5
    assert wrong <= 0.02
    assert "A target of 0.1 % is an error" in text


def one_table_cell(text):
    rows = re.findall(r"c = ([\d.]+) *: ([\d.]+) \(([\d.]+)\), published ([\d.]+)", text)
    assert len(rows) == 5
    for _, mean, deviation, published in rows:
        assert float(mean) <= float(published) + 3 * float(deviation)


def triage_costs(text):
    one_price, own_prices = (float(found) for found in re.findall(r"([\d.]+) per patient", text))
    assert own_prices < one_price


def monitor(out):
    months = out.split("month ")[1:]
    assert len(months) == 4
    assert "ALARM" not in "".join(months[:3])
    assert "the distribution of the confidence has changed" in months[3]


def llm_log_probabilities(text):
    plain, calibrated = (float(found) for found in re.findall(r"([\d.]+) per 100 tickets", text))
    everything = float(re.findall(r"([\d.]+) if it answered all", text)[0])
    assert calibrated < plain < everything
    assert "read as log-probabilities" in text


def serve_your_model(text):
    model, first, second = text.splitlines()
    assert model == "TableModel('Pipeline' for 'cultivar': 3 classes, 4 columns)"
    assert first.startswith("class_0: class_0 ")
    assert second.startswith("declined: ")


def novel_rows(text):
    shares = percentages(text)
    assert len(shares) == 12
    assert shares[5] < 0.08  # ordinary digits called novel: 5 % on average
    assert shares[9] < shares[6] / 2  # nines answered with novelty, and without
    assert shares[11] > 0.6


def groups(text):
    wrong = percentages(text)[1::2]
    assert wrong[1] > 0.05  # the south, with a guarantee for all answers together
    assert max(wrong[2:]) <= 0.05


def reviewed_rows(text):
    old, naive, corrected = (float(line.rsplit(" ", 1)[1]) for line in text.splitlines())
    assert corrected < min(old, naive)


SHOWN = {
    "novel_rows": novel_rows,
    "groups": groups,
    "reviewed_rows": reviewed_rows,
    "any_sklearn_model": any_sklearn_model,
    "check_a_loss": check_a_loss,
    "deferral": deferral,
    "ensemble_and_cost_curve": ensemble_and_cost_curve,
    "guarantee": guarantee,
    "llm_log_probabilities": llm_log_probabilities,
    "lightning_loop": answers_most_and_nearly_all_rightly,
    "monitor": monitor,
    "one_table_cell": one_table_cell,
    "own_loop": answers_most_and_nearly_all_rightly,
    "quick_start": answers_most_and_nearly_all_rightly,
    "serve_your_model": serve_your_model,
    "triage_costs": triage_costs,
}
"""For each example, what its output must show."""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # a newcomer's warnings are not errors
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_its_point(path, capsys, tmp_path, monkeypatch, request):
    if path.stem == "one_table_cell":
        monkeypatch.setenv("DEMUR_DATA", str(request.getfixturevalue("data_folder")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(path), run_name="__main__")
    SHOWN[path.stem](capsys.readouterr().out)


def test_every_example_is_judged():
    assert {path.stem for path in EXAMPLES} == set(SHOWN)


def run(path, **environment):
    return subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.mark.slow
def test_the_quick_start_runs_as_a_newcomer_runs_it():
    result = run(ROOT / "examples" / "quick_start.py")
    assert result.returncode == 0, result.stderr
    answers_most_and_nearly_all_rightly(result.stdout)


@pytest.mark.slow
def test_an_example_without_its_data_says_what_to_do(tmp_path):
    nowhere = "http://127.0.0.1:9"  # refuses every connection, so that nothing is downloaded
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere)
    result = run(
        ROOT / "examples" / "one_table_cell.py", DEMUR_DATA=str(tmp_path), XDG_CACHE_HOME=str(tmp_path), **proxies
    )
    assert result.returncode == 1
    assert "this example needs the data set vehicle" in result.stderr
    assert "put vehicle.csv.gz into a folder" in result.stderr
    assert "Traceback" not in result.stderr
