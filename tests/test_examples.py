"""Every example runs as a newcomer would run it, and ends in a decision."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DATA = Path(os.environ.get("DEMUR_DATA", ROOT.parent / "shared" / "data"))


def run(path, **environment):
    return subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", **environment},
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path):
    if path.stem == "one_table_cell" and not DATA.is_dir():
        pytest.skip(f"the data sets are not in {DATA}; set DEMUR_DATA")
    result = run(path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_an_example_without_its_data_says_what_to_do(tmp_path):
    nowhere = "http://127.0.0.1:9"  # refuses every connection, so that nothing is downloaded
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere)
    result = run(
        ROOT / "examples" / "one_table_cell.py", DEMUR_DATA=str(tmp_path), XDG_CACHE_HOME=str(tmp_path), **proxies
    )
    assert result.returncode == 1
    assert "this example needs the data set vehicle" in result.stderr
    assert "put vehicle.csv.gz into a folder" in result.stderr
    assert "Traceback" not in result.stderr
