"""Whatever the file, reading and understanding it works, or one sentence says why not."""

import io
import random
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hostile import REFUSED, hostile_files, open_chunks

from demur.columns import Schema, TableError, TableWarning
from demur.tabular import LabelledTable, TableWriter, open_table, read_table

FILES = hostile_files()
every_file = pytest.mark.parametrize("name", FILES)

NOTHING_TO_LEARN = {
    "all_rows_equal.csv",
    "one_row.csv",
    "target_absent.csv",
    "target_alone.csv",
    "target_and_constant.csv",
    "target_in_capitals.csv",
}


@pytest.fixture(autouse=True)
def encodings_may_be_assumed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        yield


def refusal(action):
    """Run it; return the message of the TableError that it raises, or None. Anything else is a failure."""
    try:
        action()
    except TableError as error:
        return str(error)
    return None


@every_file
def test_files_work_or_are_refused_in_one_sentence(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    message = refusal(lambda: read_table(path))
    assert (message is not None) == (name in REFUSED), message
    if message is not None:
        assert message.isprintable()
        assert len(message) < 400
        assert name in message
        assert ": " in message  # the problem, then what to do
        return
    with open_table(path) as reader:
        table = reader.read()
    message = refusal(lambda: Schema.learn(table, target="y"))
    assert (message is not None) == (name in NOTHING_TO_LEARN), message
    if message is not None:
        assert message.isprintable()
        return
    schema = replace(Schema.learn(table, target="y"), notation=reader.notation)
    encoded = schema.encode(table)
    assert encoded.shape == (table.num_rows, len(schema.columns))
    assert not np.isinf(encoded).any()
    assert np.isfinite(encoded).any(axis=0).all()  # a column that is all missing is set aside
    schema.check(dict(zip(table.column_names, table.schema.types, strict=True)))
    # Read again in chunks, with the types insisted on, the features are the same.
    with open_table(io.BytesIO(FILES[name]), **schema.notation_with({})) as reader:
        schema.check(reader.columns)
        chunks = [schema.encode(chunk) for chunk in reader.chunks(schema.arrow_types(), 7_000)]
    np.testing.assert_array_equal(np.concatenate(chunks), encoded)


@every_file
def test_chunks_refuse_what_a_whole_read_refuses(name):
    message = refusal(lambda: list(open_chunks(io.BytesIO(FILES[name]))))
    assert (message is not None) == (name in REFUSED), message


TABLE = pa.table(
    {
        "a": [float(i) for i in range(60)],
        "kind": pa.array(["red", "green", "blue"] * 20).dictionary_encode(),
        "when": pa.array(range(60), pa.timestamp("us", "UTC")),
        "price": pa.array(range(60)).cast(pa.decimal128(22, 2)),
        "y": ["cat", "dog"] * 30,
    }
)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_damaged_files_are_read_or_refused(suffix, tmp_path):
    with TableWriter(tmp_path / f"plain.{suffix}") as writer:
        writer.write(TABLE)
    plain = (tmp_path / f"plain.{suffix}").read_bytes()
    n_refused = 0
    for seed in range(250):
        draw = random.Random(seed)
        data = bytearray(plain)
        for _ in range(draw.choice([1, 2, 4])):
            # mostly in the footer, which describes the rest
            position = draw.randrange(len(data) if draw.random() < 0.4 else 800)
            data[-1 - position] = draw.choice([0, 127, 128, 255, data[-1 - position] ^ 1 << draw.randrange(8)])

        def use(data=bytes(data)):
            table = read_table(io.BytesIO(data))
            Schema.learn(table, target="y").encode(table)
            LabelledTable.of(table, "y")

        message = refusal(use)
        n_refused += message is not None
        assert message is None or message.isprintable()
        refusal(lambda data=bytes(data): list(open_chunks(io.BytesIO(data))))
    assert 100 < n_refused < 250
