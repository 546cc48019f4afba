"""Labels of every type become text and come back."""

import datetime

import pyarrow as pa
import pytest

from demur.columns import TableError
from demur.tabular.table_files import as_column, class_texts, label_type

DAY, MOMENT = datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 10, 30)

CASES = [
    (pa.array([3, None, -1]), "integer", ["3", None, "-1"]),
    (pa.array([3.0, None, float("nan")]), "integer", ["3", None, None]),
    (pa.array([0.1, 2.0]), "number", ["0.1", "2"]),
    (pa.array([float("inf"), 1.0]), "number", ["inf", "1"]),
    (pa.array([1e20, 2e20]), "number", ["1" + 20 * "0", "2" + 20 * "0"]),
    (pa.array([2**63], pa.uint64()), "text", [str(2**63)]),
    (pa.array([True, False]), "boolean", ["true", "false"]),
    (pa.array(["a", "", None]), "text", ["a", "", None]),
    (pa.array(["a", None]).dictionary_encode(), "text", ["a", None]),
    (pa.array([7, 8]).dictionary_encode(), "integer", ["7", "8"]),
    (pa.array([DAY]), "text", ["2024-01-31"]),
    (pa.array([MOMENT], pa.timestamp("s")), "text", ["2024-01-31 10:30:00"]),
    (pa.array([MOMENT], pa.timestamp("ns")), "text", ["2024-01-31 10:30:00"]),
    (pa.array([None, None]), "text", [None, None]),
]


@pytest.mark.parametrize(("labels", "kind", "texts"), CASES)
def test_there_and_back(labels, kind, texts):
    column = pa.chunked_array([labels])
    assert label_type(column, "y") == kind
    assert class_texts(column).tolist() == texts
    known = [text for text in texts if text is not None]
    back = as_column(known, kind)
    assert class_texts(pa.chunked_array([back])).tolist() == known


@pytest.mark.parametrize("labels", [pa.array([[1]]), pa.array([b"x"]), pa.array([{"a": 1}])])
def test_what_can_be_no_class_is_refused(labels):
    with pytest.raises(TableError, match="classes must be text, numbers or dates"):
        label_type(pa.chunked_array([labels]), "y")


def test_a_quantity_is_refused():
    with pytest.raises(TableError, match="2,000 different numbers, so it is a quantity"):
        label_type(pa.chunked_array([pa.array([k + 0.5 for k in range(2_000)])]), "y")
