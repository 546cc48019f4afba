"""The command line in this process: a call takes milliseconds, and what it prints is caught."""

import importlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits


@dataclass(frozen=True)
class Result:
    """What a call came to: its exit code and the bytes that it wrote."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self):
        return self.output.decode()

    @property
    def complaint(self):
        """The one sentence that a refused call ends in; notes may stand before it."""
        assert self.code == 2, self
        *notes, line = self.errors.strip().splitlines()
        assert all(note.startswith("Note: ") for note in notes), self.errors
        assert line.startswith("demur: "), self.errors
        return line.removeprefix("demur: ")


def run_demur(*arguments, stdin=b""):
    from demur.cli import run

    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin)),
        "stdout": io.TextIOWrapper(io.BytesIO(), "utf-8"),
        "stderr": io.TextIOWrapper(io.BytesIO(), "utf-8"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["demur", *map(str, arguments)])
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        code = 0
        try:
            run()
        except SystemExit as leaving:
            code = leaving.code or 0
    for name in ("stdout", "stderr"):
        streams[name].flush()
    return Result(code, streams["stdout"].buffer.getvalue(), streams["stderr"].buffer.getvalue().decode())


@pytest.fixture(scope="session")
def demur():
    return run_demur


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Keep the numerical libraries from waiting for each other where other tests run beside these."""
    with threadpool_limits(1):
        yield


sys.path.insert(0, str(Path(__file__).parents[1] / "tabular"))


def load_hostile():
    return importlib.import_module("hostile")


def pytest_generate_tests(metafunc):
    if "hostile_file" in metafunc.fixturenames:
        files = list(load_hostile().hostile_files().items())
        if metafunc.function.__name__ == "test_fit":
            files = files[::4]  # a real model is fitted on every file by the slow tests
        metafunc.parametrize("hostile_file", files, ids=[name for name, _ in files])


@pytest.fixture(scope="session")
def hostile():
    return load_hostile()


@pytest.fixture(scope="session")
def pets(tmp_path_factory, demur, hostile):
    """Return a folder with a table (train.csv), new rows (new.csv, new.parquet) and a model of the former (model)."""
    import pyarrow.csv
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("pets")
    rows = hostile.plain_rows(900)
    for name, part in (("train.csv", rows[:400]), ("new.csv", rows[400:])):
        lines = ["a,b,kind,y", *(",".join(row) for row in part)]
        (folder / name).write_text("\n".join(lines) + "\n")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "new.csv"), folder / "new.parquet")
    result = demur("fit", folder / "train.csv", "--target", "y", "--model", "lr", "--out", folder / "model")
    assert result.code == 0, result
    return folder
