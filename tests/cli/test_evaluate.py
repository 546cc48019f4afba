"""``demur evaluate``: figures that anybody can count from the decisions."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.deploy import load
from demur.tabular import read_table


def evaluated(demur, *arguments, stdin=b""):
    result = demur("evaluate", *arguments, "--json", stdin=stdin)
    assert result.code == 0, result
    return json.loads(result.text)


def test_the_figures_are_those_of_the_decisions(demur, pets):
    table = read_table(pets / "new.csv")
    truth, answers = table["y"].to_pylist(), load(pets / "model").answers(table)["prediction"].to_pylist()
    given = [(said, true) for said, true in zip(answers, truth, strict=True) if said is not None]
    wrong = sum(said != true for said, true in given)
    found = evaluated(demur, pets / "model", pets / "new.csv")
    figures = {name: one["estimate"] for name, one in found["figures"].items()}
    assert found["n_rows"] == 500
    assert figures["coverage"] == pytest.approx(len(given) / 500)
    assert figures["accepted_accuracy"] == pytest.approx(1 - wrong / len(given))
    assert figures["risk"] == pytest.approx((wrong + 0.2 * (500 - len(given))) / 500)
    for one in found["figures"].values():
        assert one["low"] <= one["estimate"] <= one["high"]


def test_every_way_in_gives_the_same(demur, pets):
    from_file = evaluated(demur, pets / "model", pets / "new.csv")
    assert evaluated(demur, pets / "model", pets / "new.parquet") == from_file
    assert evaluated(demur, pets / "model", "-", stdin=(pets / "new.csv").read_bytes()) == from_file


def test_the_verdict_comes_first_and_checks_can_be_left_out(demur, pets):
    few = pets / "few.csv"
    few.write_text("\n".join((pets / "new.csv").read_text().splitlines()[:9]) + "\n")
    found = evaluated(demur, pets / "model", few)
    assert "DM003" in {one["code"] for one in found["checks"]}
    assert {one["other"] for one in found["verdict"]} == {"answering every row", "declining every row"}
    text = demur("evaluate", pets / "model", few).text
    assert (
        0
        <= text.index("Verdict on 8 rows")
        < text.index("DM003 Too few rows to tell")
        < text.index("Accepted accuracy")
    )
    left = evaluated(demur, pets / "model", few, "--ignore", "dm003,DM013")
    assert {"DM003", "DM013"}.isdisjoint(one["code"] for one in left["checks"])
    refused = demur("evaluate", pets / "model", few, "--ignore", "DM3")
    assert (refused.code, "there is no check 'DM3'" in refused.complaint) == (2, True)


def test_a_report_never_replaces_the_rows_that_are_read(demur, pets, tmp_path):
    rows = (pets / "new.csv").read_bytes()
    for option in ((pets / "new.csv"), (pets / "sub" / ".." / "new.csv")):
        refused = demur("evaluate", pets / "model", pets / "new.csv", "--report", option, "--force")
        assert (refused.code, "is a file that is being read" in refused.complaint) == (2, True)
    command = ("fit", pets / "new.csv", "--target", "y", "--model", "lr", "--out", tmp_path / "m")
    refused = demur(*command, "--report", pets / "new.csv", "--force")
    assert (refused.code, "is a file that is being read" in refused.complaint) == (2, True)
    assert (pets / "new.csv").read_bytes() == rows


def test_another_cost_prices_and_decides(demur, pets):
    dear, cheap = (evaluated(demur, pets / "model", pets / "new.csv", "--cost", cost) for cost in ("0.4", "0.01"))
    assert dear["cost"] == 0.4
    assert cheap["figures"]["coverage"]["estimate"] < dear["figures"]["coverage"]["estimate"]


def test_labels_that_are_no_class_count_as_errors_when_answered(demur, pets, tmp_path):
    lines = (pets / "new.csv").read_text().splitlines()
    lines[1] = lines[1].rsplit(",", 1)[0] + ",newt"
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    found = evaluated(demur, pets / "model", tmp_path / "new.csv")
    assert found["n_unknown_labels"] == 1
    words = " ".join(demur("evaluate", pets / "model", tmp_path / "new.csv").text.split())
    assert "1 row has a label that the model does not know" in words
    pq.write_table(pa.table({"a": [1.0], "b": [2.0], "kind": ["red"], "y": ["newt"]}), tmp_path / "all.parquet")
    assert "none of the labels is a class" in demur("evaluate", pets / "model", tmp_path / "all.parquet").complaint


def test_a_text_column_may_look_like_numbers_in_other_rows(demur, tmp_path):
    rows = [f"{('A1', '07')[k % 2]},{('yes', 'no')[k % 2]}" for k in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["code,y", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("code,y\n07,no\n07,no\n")
    options = ("--target", "y", "--model", "lr", "--out", tmp_path / "model")
    assert demur("fit", tmp_path / "train.csv", *options).code == 0
    assert evaluated(demur, tmp_path / "model", tmp_path / "new.csv")["figures"]["risk"]["estimate"] == 0


def test_the_report_is_written_once(demur, pets, tmp_path):
    call = ("evaluate", pets / "model", pets / "new.csv", "--report", tmp_path / "report.html")
    result = demur(*call)
    assert result.code == 0, result
    assert "Verdict on 500 rows" in result.text
    page = (tmp_path / "report.html").read_text()
    assert "new.csv" in page
    assert "exists already" in demur(*call).complaint
    assert demur(*call, "--force").code == 0
    assert "is a folder" in demur(*call[:-1], tmp_path, "--force").complaint
    assert demur(*call[:-1], tmp_path / "new" / "folder" / "report.html").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "report.html"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,kind\n1,2,red\n", "there is no column 'y' with the labels"),
        ("a,b,kind,y\n1,2,red,\n", "is empty"),
        ("a,kind,y\n1,red,cat\n", "missing 'b'"),
        ("a,b,kind,y,z\n1,2,red,cat,5\n", "extra 'z'"),
    ],
)
def test_tables_that_cannot_be_evaluated_are_refused(demur, pets, text, words, tmp_path):
    (tmp_path / "new.csv").write_text(text)
    assert words in demur("evaluate", pets / "model", tmp_path / "new.csv").complaint


def test_outputs_and_labels_in_files_of_their_own(demur, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=400)
    logits = rng.normal(size=(400, 5)).astype(np.float32)
    logits[np.arange(400), y] += 3
    np.save(tmp_path / "z.npy", logits)
    np.save(tmp_path / "y.npy", y)
    files, out = ("--proba", tmp_path / "z.npy", "--labels", tmp_path / "y.npy"), tmp_path / "m"
    assert demur("fit", *files, "--out", out).code == 0
    assert evaluated(demur, out, tmp_path / "z.npy", "--labels", tmp_path / "y.npy")["n_rows"] == 400
    assert "--labels" in demur("evaluate", out, tmp_path / "z.npy").errors
    assert "--labels" in demur("fit", *files[:2], "--out", tmp_path / "n").errors


def test_compare_says_whether_a_difference_is_real(demur, tmp_path):
    rng = np.random.default_rng(0)
    size, noise = rng.normal(size=(2, 1200))
    table = pa.table({"size": size, "noise": noise, "y": np.where(size + 0.3 * noise > 0, "big", "small")})
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    pq.write_table(table.slice(0, 400), train)
    pq.write_table(table.slice(400), test)
    first, second, third = (tmp_path / name for name in "abc")
    for folder, more in ((first, ("--drop", "size")), (second, ()), (third, ("--coverage", "0.8"))):
        result = demur("fit", train, "-t", "y", "-m", "lr", "--holdout", "0", "-o", folder, *more)
        assert result.code == 0, result
    assert "The difference is significant" in demur("compare", first, second, test).text
    same = json.loads(demur("compare", second, second, test, "--json").text)
    assert (same["real"], same["difference"]["estimate"], same["rows"]) == (False, 0, 800)
    assert "or rules without one: give a cost (--cost)" in demur("compare", second, third, test).complaint
    assert "Difference: " in demur("compare", second, third, test, "--cost", "0.2").text
    assert "give a file instead of standard input" in demur("compare", first, second, "-").complaint
    other = tmp_path / "other.parquet"
    pq.write_table(table.append_column("z", table["y"]), other)
    assert demur("fit", other, "-t", "z", "--drop", "y", "-m", "lr", "-o", tmp_path / "d").code == 0
    assert "predict different columns, 'y' and 'z'" in demur("compare", first, tmp_path / "d", other).complaint
