"""Deciding chunk by chunk, and for a folder of Parquet files."""

import itertools
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.columns import TableError
from demur.tabular import Decided, decide_file, fit_table
from demur.tabular.decide_files import _IN_FLIGHT, _in_order


def test_a_folder_is_decided_for_as_one_table(tmp_path):
    size = np.random.default_rng(0).normal(size=200)
    model = fit_table(pa.table({"size": size, "y": np.where(size > 0.1, "large", "small")}), "y", model="lr")
    for name, part in (("a.parquet", size[:50]), ("more/b.parquet", size[50:])):
        path = tmp_path / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"size": part}), path)
    total = decide_file(model, tmp_path / "new", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.equals(model.answers(pa.table({"size": size})))
    assert total == Decided(200, sum(found["rejected"].to_pylist()))
    pq.write_table(pa.table({"length": [1.0]}), tmp_path / "new" / "more" / "b.parquet")
    with pytest.raises(TableError, match=r"b\.parquet and a\.parquet in new have different columns"):
        decide_file(model, tmp_path / "new", tmp_path / "other.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"no \.parquet files"):
        decide_file(model, tmp_path / "empty", tmp_path / "other.parquet")


def test_results_come_in_order_and_few_at_a_time():
    read, finished = itertools.count(), []
    most = 0

    def chunks():
        nonlocal most
        for chunk in range(50):
            most = max(most, next(read) + 1 - len(finished))
            yield chunk

    results = _in_order(lambda chunk: chunk * chunk, chunks())
    while (value := next(results, None)) is not None:
        finished.append(value)
    assert finished == [k * k for k in range(50)]
    assert most <= _IN_FLIGHT


def test_a_failure_ends_the_work_and_its_threads():
    before = threading.active_count()

    def fail_at_five(chunk):
        if chunk == 5:
            raise ValueError("five")
        return chunk

    found = []
    with pytest.raises(ValueError, match="five"):
        found += list(_in_order(fail_at_five, range(1_000_000)))
    assert threading.active_count() == before
