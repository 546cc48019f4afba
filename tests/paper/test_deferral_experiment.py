"""The comparison of ways to defer: its pieces, its page, and the command that makes them."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demur.cli.app import app
from demur.deferral import available_joint, get_joint
from demur.errors import InputError, UserError
from demur.paper.deferral_experiment import DeferralProtocol, DeferralRun

ROOT = Path(__file__).parents[2]


def test_the_stored_page_is_what_the_stored_records_draw(tmp_path):
    shutil.copy(ROOT / "results" / "deferral" / "records.jsonl", tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "deferral", "--tables-only", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "README.md").read_text() == (ROOT / "results" / "deferral" / "README.md").read_text()


def test_every_cell_of_the_stored_comparison_is_there():
    tables, protocol = DeferralRun(ROOT / "results" / "deferral", None).records(), DeferralProtocol()
    assert len(tables) == 5 * protocol.trials * (len(available_joint()) + 1)
    assert all(record["spec"]["train_rows"] == protocol.train_rows for record in tables)


def test_a_half_written_line_is_passed_over(tmp_path):
    (tmp_path / "records.jsonl").write_text(json.dumps({"part": "tables"}) + '\n{"part": "ta')
    assert DeferralRun(tmp_path, None).records() == [{"part": "tables"}]


@pytest.mark.parametrize("setting", ["trails=3", "trials=many", "trials"])
def test_settings_are_checked(setting, tmp_path):
    with pytest.raises(InputError):
        DeferralRun(tmp_path, None, [setting])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables-only"], "there are no records"),
        (["--problems", "lettre"], "unknown data set 'lettre'"),
        (["--methods", "mss"], "unknown method 'mss'"),
    ],
)
def test_wrong_calls_are_refused_in_words(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "deferral", *arguments])
    assert isinstance(done.exception, UserError)  # main() makes exit code 2 of it
    assert message in str(done.exception)


def test_what_is_done_is_not_done_again(tmp_path, data_folder):
    said = []
    for _ in range(2):
        DeferralRun(tmp_path, data_folder, quick=True).compute(["vehicle"], ["ms", "two-stage"], said.append)
    assert len(said) == 2
    assert {record["method"] for record in DeferralRun(tmp_path, None).records()} == {"ms", "two-stage"}


def test_the_page_on_deferral_has_a_row_for_each_joint_loss():
    page = (ROOT / "docs" / "deferral.md").read_text().split("## On a problem")[0]
    rows = {re.findall("`(.+?)`", row)[0]: row.split("|") for row in page.splitlines() if row.startswith("| `")}
    assert sorted(rows) == available_joint()
    for name, row in rows.items():
        loss = get_joint(name)
        assert row[3].strip().startswith("calibrated" if loss.calibrated else "refuted")
        assert row[4].strip() == ("in the training" if loss.trained_for_prices else "when deciding")
        assert (row[5].strip() == "none") != loss.has_estimates
