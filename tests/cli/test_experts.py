"""Experts on the command line: fitted, judged, asked for, limited, and what is refused."""

import csv
import json

import numpy as np
import pyarrow.csv as pacsv
import pytest

from demur.deploy import load

NAMES = ("sick", "well")


def rows(n=500, seed=0):
    """Return a table of patients: the nurse is good where the pulse is high, the consultant nearly always."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    nurse = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * x[:, 1])), y, 1 - y)
    consultant = np.where(rng.random(n) < 0.97, y, 1 - y)
    table = {"temp": x[:, 0].round(4), "pulse": x[:, 1].round(4)}
    for name, said, seen in (("nurse_says", nurse, 0.6), ("cons_says", consultant, 0.4)):
        table[name] = np.where(rng.random(n) < seen, np.take(NAMES, said), "")
    return table | {"y": np.take(NAMES, y)}


def write(path, table):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


EXPERTS = ("--expert", "nurse=nurse_says:0.05", "--expert", "consultant=cons_says:0.2")


@pytest.fixture(scope="module")
def place(tmp_path_factory, demur):
    folder = tmp_path_factory.mktemp("experts")
    write(folder / "data.csv", rows())
    write(folder / "new.csv", rows(200, seed=1))
    result = demur("fit", folder / "data.csv", "-t", "y", "-m", "lr", *EXPERTS, "-o", folder / "model", "--json")
    assert result.code == 0, result
    (folder / "fit.json").write_bytes(result.output)
    return folder


def decisions(path):
    return pacsv.read_csv(path, convert_options=pacsv.ConvertOptions(strings_can_be_null=True)).to_pydict()


def test_answers_are_not_features_and_the_system_is_evaluated(place):
    found = json.loads((place / "fit.json").read_text())
    model = load(place / "model")
    assert model.schema.names == ("temp", "pulse")
    assert model.schema.set_aside["nurse_says"] == "it holds answers of 'nurse'"
    assert model.experts.prices == {"nurse": 0.05, "consultant": 0.2}
    assert found["answers"]["nurse"]["rows"] > 100
    judged = found["evaluation"]
    assert judged["figures"]["system_risk"]["estimate"] < judged["asking"]["risk_if_nobody_asked"]["estimate"]
    loads = [expert["load"] for expert in judged["asking"]["experts"]]
    assert all(0 <= one["low"] <= one["estimate"] <= one["high"] <= 1 for one in loads)
    own = judged["figures"]["coverage"]["estimate"]
    assert own + sum(one["estimate"] for one in loads) == pytest.approx(1)


def test_evaluate_compares_experts_with_fixed_choices(demur, place):
    result = demur("evaluate", place / "model", place / "new.csv")
    words = " ".join(result.text.split())
    for part in ("System risk", "System accuracy", "Error rate", "nurse", "consultant", "risk if always"):
        assert part in words
    assert "itself and asks nurse about" in words
    assert "the asked expert's answer is missing; the expected error is used" in words


def test_evaluate_against_a_count_by_hand(demur, place, tmp_path):
    """On rows with all answers, risk, accuracy and load are what a reader counts in the file of decisions."""
    table = rows(300, seed=2)
    full = [k for k in range(300) if table["nurse_says"][k] and table["cons_says"][k]]
    data = write(tmp_path / "full.csv", {name: np.asarray(column)[full] for name, column in table.items()})
    judged = json.loads(demur("evaluate", place / "model", data, "--json").text)
    assert demur("predict", place / "model", data, "-o", tmp_path / "out.csv", "--keep", "y").code == 0
    out = decisions(tmp_path / "out.csv")
    price = {None: 0.0, "nurse": 0.05, "consultant": 0.2}
    wrong = [said != true for said, true in zip(out["system_answer"], out["y"], strict=True)]
    costs = [price[who] + bad for who, bad in zip(out["ask"], wrong, strict=True)]
    assert judged["figures"]["system_risk"]["estimate"] == pytest.approx(np.mean(costs))
    assert judged["figures"]["system_accuracy"]["estimate"] == pytest.approx(1 - np.mean(wrong))
    assert judged["asking"]["n_without_answer"] == 0
    assert judged["asking"]["experts"][0]["n_asked"] == out["ask"].count("nurse") > 0
    some = [said != true for k in full for said, true in [(table["cons_says"][k], table["y"][k])]]
    assert judged["asking"]["experts"][1]["risk_if_always_asked"]["estimate"] == pytest.approx(0.2 + np.mean(some))


def test_predict_writes_whom_to_ask(demur, place, tmp_path):
    result = demur("predict", place / "model", place / "new.csv", "-o", tmp_path / "out.csv")
    assert "for experts" in result.text
    out = decisions(tmp_path / "out.csv")
    assert list(out)[-3:] == ["ask", "expected_cost", "system_answer"]
    said = {name: rows(200, seed=1)[column] for name, column in (("nurse", "nurse_says"), ("consultant", "cons_says"))}
    for k, who in enumerate(out["ask"]):
        assert (out["prediction"][k] is None) == out["rejected"][k] == (who is not None)
        expected = out["first_choice"][k] if who is None else said[who][k] or None
        assert out["system_answer"][k] == expected
    assert max(out["expected_cost"]) < 0.5
    plain = rows(200, seed=1)
    del plain["nurse_says"], plain["cons_says"]
    write(tmp_path / "plain.csv", plain)
    assert demur("predict", place / "model", tmp_path / "plain.csv", "-o", tmp_path / "alone.csv").code == 0
    alone = decisions(tmp_path / "alone.csv")
    assert list(alone)[-2:] == ["ask", "expected_cost"]
    assert alone["ask"] == out["ask"]


def test_prices_change_without_a_refit(demur, place, tmp_path):
    shares = []
    for price in ("0", "0.1", "0.9"):
        out = tmp_path / f"{price}.csv"
        demur("predict", place / "model", place / "new.csv", "-o", out, "--price", f"consultant={price}")
        shares.append(decisions(out)["ask"].count("consultant"))
    assert shares[0] > shares[1] > shares[2] == 0
    judged = demur("evaluate", place / "model", place / "new.csv", "--price", "consultant=0.9", "--json")
    assert json.loads(judged.text)["asking"]["experts"][1]["n_asked"] == 0
    assert json.loads(judged.text)["asking"]["experts"][1]["price"] == 0.9


def test_limits_hold_for_a_file_whatever_the_size_of_its_pieces(demur, place, tmp_path):
    asked = []
    for size in (7, 1000):
        out = tmp_path / f"{size}.csv"
        options = ("--capacity", "consultant=9", "--capacity", "nurse=0.1", "--chunk-rows", size)
        assert demur("predict", place / "model", place / "new.csv", "-o", out, *options).code == 0
        asked.append(decisions(out)["ask"])
    assert asked[0] == asked[1]
    assert asked[0].count("consultant") == 9
    assert asked[0].count("nurse") == 20
    table = (place / "new.csv").read_bytes()
    piped = demur("predict", place / "model", "-", "--capacity", "consultant=9", stdin=table)
    assert piped.code == 0
    assert piped.text.count(",consultant,") == 9


def test_limits_are_part_of_the_model(demur, place, tmp_path):
    options = (*EXPERTS, "--capacity", "consultant=5")
    result = demur("fit", place / "data.csv", "-t", "y", "-m", "lr", *options, "-o", tmp_path / "model")
    assert result.code == 0, result
    for more, count in (((), 5), (("--capacity", "consultant=none"), None), (("--capacity", "consultant=2"), 2)):
        out = tmp_path / "out.csv"
        demur("predict", tmp_path / "model", place / "new.csv", "-o", out, "--force", *more)
        found = decisions(out)["ask"].count("consultant")
        assert found == count or (count is None and found > 5)


def test_unusual_names_numbers_as_classes_and_several_people(demur, tmp_path):
    """Column names with the option's own signs, spaces and umlauts; classes 0 and 1; two people as one expert."""
    table = rows(300)
    said = np.array([{"sick": "1.0", "well": "0.0", "": ""}[one] for one in table["nurse_says"]])
    other = np.array([{"sick": "1", "well": "0", "": "NA"}[one] for one in table["cons_says"]])
    odd = {
        "temp": table["temp"],
        "Ärzte: says, at=8 h": said,
        "second one": other,
        "pulse": table["pulse"],
        "is it?": (np.array(table["y"]) == "sick").astype(int),
    }
    write(tmp_path / "odd.csv", odd)
    one = ("--expert", "Frau Ö.=Ärzte: says, at=8 h:0.02")
    fit = ("fit", tmp_path / "odd.csv", "-t", "is it?", "-m", "lr")
    result = demur(*fit, *one, "-o", tmp_path / "one")
    assert result.code == 0, result
    assert load(tmp_path / "one").experts.columns == {"Frau Ö.": ("Ärzte: says, at=8 h",)}
    result = demur("predict", tmp_path / "one", tmp_path / "odd.csv")
    assert "Frau Ö." in result.text
    del odd["Ärzte: says, at=8 h"]
    write(tmp_path / "odd.csv", {**odd, "first one": said})
    result = demur(*fit, "--expert", "team=second one, first one:0.02", "-o", tmp_path / "team")
    assert result.code == 0, result
    model = load(tmp_path / "team")
    assert model.experts.columns == {"team": ("second one", "first one")}
    assert model.facts["answers"]["team"]["answers"] > model.facts["answers"]["team"]["rows"]
    assert set(decisions_of(demur, tmp_path)["system_answer"]) <= {0, 1, None}


def decisions_of(demur, folder):
    assert demur("predict", folder / "team", folder / "odd.csv", "-o", folder / "out.csv").code == 0
    return decisions(folder / "out.csv")


def test_an_expert_who_is_the_label_is_worth_a_note(demur, place, tmp_path):
    table = rows(200)
    write(tmp_path / "same.csv", {**table, "boss": table["y"]})
    drop = ("--drop", "nurse_says", "--drop", "cons_says")
    options = ("-t", "y", "-m", "lr", "--expert", "boss=boss:0.1", *drop, "-o", tmp_path / "m")
    result = demur("fit", tmp_path / "same.csv", *options)
    assert "the answers of boss equal the labels in all" in result.errors
    assert "always right" in result.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--expert", "nurse=0.05"], "--expert must be NAME=COLUMN:PRICE"),
        (["--expert", "nurse"], "--expert must be NAME=COLUMN:PRICE"),
        (["--expert", "=nurse_says:0.1"], "--expert must be NAME=COLUMN:PRICE"),
        (["--expert", "nurse=nurse_says:cheap"], "--expert: 'cheap' is not a number"),
        (["--expert", "nurse=nurse_says:-0.1"], "got -0.1"),
        (["--expert", "nurse=nurse_says:nan"], "got nan"),
        (["--expert", "nurse=nurse_says:inf"], "got inf"),
        (["--expert", "nurse=nurse_say:0.1"], "did you mean 'nurse_says'?"),
        (["--expert", "nurse=y:0.1"], "column 'y' cannot hold answers of 'nurse': it is the target"),
        (["--expert", "sick=nurse_says:0.1"], "the expert 'sick' is named like a class"),
        (["--expert", "model=nurse_says:0.1"], "cannot be called 'model'"),
        (
            ["--expert", "a=nurse_says:0.1", "--expert", "a=cons_says:0.2"],
            "once for each name, got 'a=cons_says:0.2'",
        ),
        (
            ["--expert", "a=nurse_says:0.1", "--expert", "b=nurse_says:0.2"],
            "column 'nurse_says' cannot hold answers of 'b': it holds answers of 'a'",
        ),
        (["--expert", "a=nurse_says,nurse_says:0.1"], "it holds answers of 'a'"),
        ([*EXPERTS, "--cost", "0.1"], "cannot be given together"),
        ([*EXPERTS, "--max-risk", "0.1"], "cannot be given together"),
        ([*EXPERTS, "--keep", "nurse_says"], "cannot hold answers of 'nurse': it is kept as a feature"),
        (
            [*EXPERTS, "--group-split", "nurse_says"],
            "cannot hold answers of 'nurse': its groups of rows stay together",
        ),
        ([*EXPERTS, "--proba", "p.csv"], "cannot be given together"),
        (["--capacity", "nurse=3"], "--capacity needs --expert"),
        ([*EXPERTS, "--capacity", "doctor=3"], "there is a limit for 'doctor'; the experts are nurse, consultant"),
        ([*EXPERTS, "--capacity", "nurse=-3"], "must be a whole number of rows"),
        (
            [*EXPERTS, "--capacity", "nurse=2.5"],
            "must be a whole number of rows, or a share of them in [0, 1), got 2.5",
        ),
        ([*EXPERTS, "--capacity", "nurse=many"], "--capacity: 'many' is not a number"),
        ([*EXPERTS, "--capacity", "nurse"], "--capacity must be NAME=NUMBER"),
    ],
)
def test_wrong_options_are_refused_in_words(demur, place, tmp_path, options, words):
    call = ("fit", place / "data.csv", "-t", "y", "-m", "lr", "-o", tmp_path / "m")
    assert words in demur(*call, *options).complaint
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({2: "maybe"}, "column 'nurse_says', row 3, holds 'maybe', which is not one of the classes 'sick', 'well'"),
        ({4: "Well"}, "did you mean 'well'?"),
        (dict.fromkeys(range(500), ""), "there is no answer of the expert 'nurse'"),
    ],
)
def test_wrong_answers_are_refused_by_their_row(demur, tmp_path, change, words):
    table = rows(500)
    table["nurse_says"] = [change.get(k, one) for k, one in enumerate(table["nurse_says"])]
    write(tmp_path / "data.csv", table)
    call = ("fit", tmp_path / "data.csv", "-t", "y", "-m", "lr", *EXPERTS, "-o", tmp_path / "m")
    assert words in demur(*call).complaint


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("predict", ["--price", "doctor=1"], "a price was given for 'doctor'; the experts are nurse, consultant"),
        ("predict", ["--price", "nurse=-1"], "give a number of at least 0"),
        ("predict", ["--price", "nurse"], "--price must be NAME=NUMBER"),
        ("predict", ["--cost", "0.1"], "it asks experts, each with its own price"),
        ("predict", ["--review-budget", "5"], "a review budget is for models that decline"),
        ("predict", ["--capacity", "doctor=1"], "there is a limit for 'doctor'"),
        ("predict", ["--capacity", "doctor=none"], "there is a limit for 'doctor'"),
        ("evaluate", ["--price", "doctor=1"], "a price was given for 'doctor'"),
        ("evaluate", ["--cost", "0.1"], "it asks experts, each with its own price"),
    ],
)
def test_wrong_prices_and_limits_are_refused_in_words(demur, place, command, options, words):
    assert words in demur(command, place / "model", place / "new.csv", *options).complaint


def test_a_model_that_declines_has_no_prices(demur, place, tmp_path):
    table = rows(200)
    write(tmp_path / "data.csv", {name: table[name] for name in ("temp", "pulse", "y")})
    assert demur("fit", tmp_path / "data.csv", "-t", "y", "-m", "lr", "-o", tmp_path / "m").code == 0
    call = ("predict", tmp_path / "m", tmp_path / "data.csv")
    assert "has no experts" in demur(*call, "--price", "nurse=1").complaint
    assert "has no experts" in demur(*call, "--capacity", "nurse=1").complaint


def test_predict_refuses_answers_by_their_row_in_the_file(demur, place, tmp_path):
    table = rows(200, seed=1)
    table["cons_says"] = ["dunno" if k == 150 else one for k, one in enumerate(table["cons_says"])]
    write(tmp_path / "data.csv", table)
    result = demur("predict", place / "model", tmp_path / "data.csv", "--chunk-rows", "64")
    assert "column 'cons_says', row 151, holds 'dunno'" in result.complaint


def test_a_damaged_model_is_noticed(demur, place, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (place / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    content = bytearray((folder / "model.skops").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.skops").write_bytes(content)
    assert "damaged or was altered" in demur("predict", folder, place / "new.csv").complaint
