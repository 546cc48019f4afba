"""A TableModel reads DataFrames as well as Arrow tables."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from demur.tabular import fit_table

TABLE = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})


@pytest.mark.parametrize("convert", [pa.Table.to_pandas, pl.from_arrow], ids=["pandas", "polars"])
def test_frames_give_the_same_answers(convert):
    model = fit_table(TABLE, "pet", model="lr")
    frame = convert(TABLE.drop_columns("pet"))
    assert isinstance(frame, (pd.DataFrame, pl.DataFrame))
    assert model.answers(frame).equals(model.answers(TABLE))


def test_its_name_is_short():
    assert repr(fit_table(TABLE, "pet", model="lr")) == "TableModel('lr' for 'pet': 2 classes, 1 columns)"
