"""Deciding chunk by chunk, and for a folder of Parquet files on Dask."""

import functools
import itertools
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.columns import TableError
from demur.tabular import Decided, DecideOptions, decide_folder, fit_table
from demur.tabular.decide_files import _IN_FLIGHT, _in_order


@pytest.fixture(scope="module")
def model():
    size = np.random.default_rng(0).normal(size=200)
    return fit_table(pa.table({"size": size, "y": np.where(size > 0.1, "large", "small")}), "y", model="lr")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    for name in ("a.parquet", "b.parquet", "more/c.parquet"):
        path = tmp_path / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"size": rng.normal(size=50), "id": np.arange(50)}), path)
    return tmp_path / "new"


@pytest.fixture(scope="module")
def scheduler():
    """Return the address of a cluster in this process, which takes a fraction of the time of one in others."""
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster.scheduler_address


def test_each_file_gets_its_decisions(model, folder, scheduler, tmp_path):
    done, options = [], DecideOptions(keep=("id",), strict=False)
    target = tmp_path / "new" / ".." / "results" / "out"
    total = decide_folder(lambda: model, folder, target, options, scheduler=scheduler, progress=done.append)
    written = {}
    for path in folder.rglob("*.parquet"):
        found = pq.read_table(tmp_path / "results" / "out" / path.relative_to(folder))
        assert found.column_names[0] == "id"
        assert found.drop_columns("id").equals(model.answers(pq.read_table(path)))
        written[path.name] = sum(found["rejected"].to_pylist())
    assert total == Decided(150, sum(written.values()))
    assert len(written) == len(done) == 3


def test_one_bad_file_and_there_is_no_folder(model, folder, scheduler, tmp_path):
    pq.write_table(pa.table({"size": ["large"], "id": [1]}), folder / "b.parquet")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableError, match="folder of Parquet files"):
        decide_folder(lambda: model, folder, tmp_path / "out", DecideOptions(strict=False), scheduler=scheduler)
    pq.write_table(pa.table({"length": [1.0]}), folder / "b.parquet")
    with pytest.raises(TableError, match=r"b\.parquet and a\.parquet in new have different columns"):
        decide_folder(lambda: model, folder, tmp_path / "out", DecideOptions(strict=False), scheduler=scheduler)
    assert sorted(tmp_path.rglob("*")) == before


def test_folders_are_replaced_on_request_only(model, folder, scheduler, tmp_path):
    call = functools.partial(decide_folder, lambda: model, folder, tmp_path / "out", scheduler=scheduler)
    options = DecideOptions(strict=False)
    call(options)
    with pytest.raises(TableError, match="already exists"):
        call(options)
    call(options, overwrite=True)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(TableError, match=r"notes\.txt"):
        call(options, overwrite=True)


def test_places_that_cannot_be_are_refused(model, folder, tmp_path):
    call = functools.partial(decide_folder, lambda: model, scheduler="local")
    with pytest.raises(TableError, match="lies in the folder that is read"):
        call(folder, folder / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"no \.parquet files"):
        call(tmp_path / "empty", tmp_path / "out")


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
