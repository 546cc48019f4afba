"""``demur refit``, and the options about novel rows and groups, as a user calls them."""

import json

import numpy as np
import pytest


def write(path, n_rows, seed, why=False):
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n_rows)
    size = (rng.normal(size=n_rows) + 1.5 * kind).round(4)
    site = rng.choice(["north", "south"], n_rows)
    lines = [f"{a},{s},{k}" + (",audit" if why else "") for a, s, k in zip(size, site, kind, strict=True)]
    path.write_text("\n".join(["size,site,kind" + (",why" if why else ""), *lines]) + "\n")


@pytest.fixture(scope="module")
def folder(demur, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refit")
    write(folder / "train.csv", 400, 0)
    write(folder / "desk.csv", 150, 1, why=True)
    demur("fit", folder / "train.csv", "--target", "kind", "--model", "lr", "--out", folder / "model")
    return folder


def test_reviewed_rows_flow_back(demur, folder):
    call = ("refit", folder / "model", folder / "desk.csv", "--data", folder / "train.csv", "--audit", 0.1)
    found = json.loads(demur(*call, "--out", folder / "newer", "--json").text)
    assert (found["trained"], found["declined"], found["audited"]) == (400, 0, 150)
    assert demur("predict", folder / "newer", folder / "train.csv").code == 0
    assert "exists" in demur(*call, "--out", folder / "newer").complaint


def test_groups_and_novelty_are_asked_for_in_words(demur, folder):
    judged = json.loads(demur("evaluate", folder / "model", folder / "train.csv", "--group", "site", "--json").text)
    assert [one["name"] for one in judged["by_group"]] == ["north", "south"]
    call = ("fit", folder / "train.csv", "--target", "kind", "--model", "lr", "--out", folder / "other")
    assert "auto, off or a share" in demur(*call, "--novelty", "often").complaint
    assert "--risk-group needs --max-risk" in demur(*call, "--risk-group", "site").complaint
