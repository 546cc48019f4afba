"""Reasons of declined rows: the columns that are known to make them ambiguous or unusual are named first."""

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from demur.columns import Column
from demur.tabular import DecideOptions, decide_file, fit_table

LINES = b"noise0,noise1,noise2,size,weight,colour\n0,0,0,3,0,red\n0,0,0,0,0,red\n0,0,0,0,9999,red\n"


def table(n_rows=300, seed=0, n_noise=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n_rows)
    noise = {f"noise{k}": rng.normal(size=n_rows) for k in range(n_noise)}
    return pa.table(
        {
            **noise,
            "size": rng.normal(size=n_rows) + 6 * (y == 1),
            "weight": rng.normal(size=n_rows) + 6 * (y == 2),
            "colour": np.array(["blue", "red"])[rng.integers(2, size=n_rows)],
            "y": np.array(["ant", "bee", "cow"])[y],
        }
    )


@pytest.fixture(scope="module", params=["lr", pytest.param("rf", marks=pytest.mark.slow)])
def model(request):
    return fit_table(table(), "y", model=request.param, time_budget=5)


def row(**values):
    return pa.table({name: [value] for name, value in {**dict.fromkeys(("noise0", "noise1", "noise2"), 0.0),
                     "size": 0.0, "weight": 0.0, "colour": "red", **values}.items()})  # fmt: skip


def test_the_ambiguous_column_is_named_first(model):
    for name, value, classes in (("size", 3.0, ("ant", "bee")), ("weight", 3.0, ("ant", "cow"))):
        asked = row(**{name: value})
        first = model.because(asked, [True], 0.01)[0][0]
        assert first["column"] == name
        for one in classes:
            assert f"{one} " in first["note"]
    assert model.because(row(), [False]) == [None]


def test_conflicting_columns_are_both_named(model):
    asked = row(size=6.0, weight=6.0)
    assert {one["column"] for one in model.because(asked, [True], 0.01)[0][:2]} == {"size", "weight"}


def test_the_unusual_column_is_named_with_its_range(model):
    asked = row(noise1=1e4)
    assert model.decide(asked).novel.tolist() == [True]
    found = model.because(asked, [True])[0]
    assert found[0]["column"] == "noise1"
    assert found[0]["note"].startswith("1e+04, in training -")
    other = model.because(row(colour="violet"), [True])[0]
    assert other == [{"column": "colour", "note": "another value"}]


def test_of_many_columns_some_are_tried():
    wide = fit_table(table(n_noise=100), "y", model="lr")
    asked = pa.table({name: [0.0] for name in wide.schema.names if name != "colour"} | {"colour": ["red"]})
    asked = asked.set_column(asked.column_names.index("size"), "size", pa.array([3.0]))
    assert wide.because(asked, [True], 0.01)[0][0]["column"] == "size"


@pytest.mark.slow
def test_text_counts_as_a_column():
    rng = np.random.default_rng(0)
    words = {"good": "lovely great fine happy bright", "bad": "awful poor sad broken dark"}
    labels = np.array(["good", "bad"])[rng.integers(2, size=120)]
    more = [
        f"a {k} day with number {k * 7919 % 1000} and remark {k * 104729 % 997} in the long list" for k in range(120)
    ]
    notes = [
        " ".join(rng.permutation(words[one].split())[:3]) + " " + end for one, end in zip(labels, more, strict=True)
    ]
    model = fit_table(pa.table({"note": notes, "y": labels}), "y", model="lr", text=["note"])
    found = model.because(pa.table({"note": ["lovely awful great poor"]}), [True], 0.001)[0]
    assert [one["column"] for one in found] in ([], ["note"])


def test_typical_values_are_of_the_classes(model):
    examples = dict(zip(model.classes.tolist(), model.examples, strict=True))
    assert examples["bee"]["size"] == pytest.approx(6, abs=0.5)
    assert examples["ant"]["size"] == pytest.approx(0, abs=0.5)
    assert examples["cow"]["colour"] in ("red", "blue")
    kept = table()["size"].to_numpy()
    assert model.ranges[model.schema.names.index("size")] == f"{kept.min():.4g} to {kept.max():.4g}"
    assert model.ranges[-1] == ""
    decided = model.decide(pa.Table.from_pylist(list(examples.values())))
    assert model.classes[decided.label].tolist() == model.classes.tolist()


@pytest.mark.parametrize("unit", ["s", "us"])
def test_codes_are_decoded(unit):
    moments = pa.array([0, 1_700_000_000], pa.timestamp("s")).cast(pa.timestamp(unit))
    column = Column("when", "date")
    codes = column.encode(moments, "a table")
    assert [column.decode(code) for code in codes] == ["1970-01-01T00:00:00", "2023-11-14T22:13:20"]
    clock = Column("at", "time")
    assert clock.decode(3661.0) == "01:01:01"
    assert Column("ok", "boolean").decode(1.0) is True
    assert Column("pet", "category", ("cat",)).decode(1.0) is None
    assert Column("size", "number").decode(np.nan) is None


def test_a_file_gets_the_reasons_as_text(model, tmp_path):
    out = tmp_path / "out.csv"
    decide_file(model, io.BytesIO(LINES), out, DecideOptions(why=True, cost=0.2))
    header, first, second, third = out.read_text().splitlines()
    assert header.endswith(",reason,because")
    assert '"ambiguous","size: ' in first
    assert second.endswith(",,")
    assert "weight: 9999, in training " in third


def test_a_model_without_typical_values_says_so(model, tmp_path):
    old = replace(model, typical=None)
    with pytest.raises(ValueError, match="no typical values"):
        old.because(row(), [True])
    with pytest.raises(ValueError, match="no typical values"):
        decide_file(old, io.BytesIO(LINES), tmp_path / "x.csv", DecideOptions(why=True))
    assert (old.examples, set(old.ranges)) == ([], {""})
