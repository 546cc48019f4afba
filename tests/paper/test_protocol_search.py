"""The search for the paper's protocol tries what the experiments compute, and its page needs only what it kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from demur.cli.app import app
from demur.cli.console import CallError
from demur.errors import InputError
from demur.paper.experiments import BENCHMARK, PUBLISHED_SETTINGS, published_benchmark
from demur.paper.problems import DataPlace, identify
from demur.paper.protocol_page import protocol_page
from demur.paper.protocol_search import (
    CHOOSING,
    CONFIRMING,
    SPACE,
    SearchStore,
    Tried,
    Way,
    _base,
    numbers_of,
    read_found,
    run_search,
    score_all,
    try_protocol,
    ways_to_choose,
    write_found,
    write_records,
)
from demur.paper.records import Store
from demur.paper.trial_computing import TIES, Validation, Workplace, choose, compute
from demur.paper.trial_jobs import TrialJob
from demur.paper.trial_means import METRICS, Numbers, Value, agreement

CPU = torch.device("cpu")
PLACE = DataPlace("/nonexistent", stand_ins=True)
TINY = replace(
    _base(), trials=2, epochs=3, costs=(0.1, 0.3), max_train_rows=120, max_test_rows=150, hidden_units=4, batch_size=32
)


def method(name):
    return next(one for one in BENCHMARK.methods if one.name == name)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"refit": "yes", "ties": "last", "thresholds": "test"},
        {"criterion": "surrogate", "ties": "rejects_most", "rejector": "separate", "decay": "decoupled"},
        {"criterion": "mean_risk", "ties": "rejects_least", "initialisation": "lecun", "scaling": "unit"},
        {"criterion": "error"},
        {"criterion": "accuracy", "thresholds": "test", "scaling": "source"},
    ],
)
def test_a_record_made_from_what_was_tried_is_what_the_experiment_computes(settings):
    protocol = replace(TINY, **settings)
    methods = [method(name) for name in ("CE", "MPC+log", "OVA+hin")]
    workplace = Workplace(CPU, PLACE)
    for tried, one in zip(try_protocol(protocol, "yeast", PLACE, CPU, methods), methods, strict=True):
        made = Tried.from_json(tried.to_json()).record(protocol)
        job = TrialJob("benchmark", "yeast", one, (0, 1), protocol, identify("yeast", protocol, PLACE))
        computed = compute(job, workplace)
        assert {(score.trial, score.cost): score for score in made.scores} == {
            (score.trial, score.cost): score for score in computed.scores
        }
        assert made.spec == computed.spec
        assert made.networks == computed.networks


def test_equals_are_told_apart_as_asked():
    tried = Validation((0.5,), 4, wrong=np.array([[2.0, 0, 1, np.nan, 0]]), rejected=np.array([[0.0, 4, 2, np.nan, 4]]))
    assert [choose(tried, "risk", ties).tolist() for ties in TIES] == [[0], [4], [1], [0]]
    assert choose(tried, "accuracy", "first").tolist() == [0]  # 2 of 4 wrong, 1 of 2 wrong, and two without an answer
    with pytest.raises(InputError, match="ties must be one of first, last"):
        choose(tried, "risk", "random")
    with pytest.raises(InputError, match="criterion must be one of risk"):
        choose(tried, "luck", "first")


def test_a_damaged_line_is_not_read(tmp_path):
    store = SearchStore(tmp_path)
    (tried,) = try_protocol(TINY, "vehicle", PLACE, CPU, [method("CE")])
    store.write(TINY, "vehicle", [tried])
    assert store.read(TINY, "vehicle")[0].test.tolist() == tried.test.tolist()
    path = store.path(TINY, "vehicle")
    path.write_bytes(path.read_bytes()[:-9])
    assert store.read(TINY, "vehicle") is None
    with pytest.raises(ValueError, match="checksum"):
        Tried.from_json(tried.to_json().replace('"n_test":146', '"n_test":147'))


def test_equal_trainings_are_kept_once():
    store = SearchStore("out")
    source, stretched = (replace(TINY, scaling=scaling) for scaling in ("source", "range"))
    assert store.path(source, "letter") == store.path(stretched, "letter")
    assert store.path(source, "yeast") == store.path(replace(TINY, scaling="none"), "yeast")
    assert store.path(source, "covtype") == store.path(replace(TINY, scaling="unit"), "covtype")
    divided = replace(TINY, validation="source")
    assert store.path(divided, "covtype") == store.path(TINY, "covtype")
    assert store.path(divided, "letter") != store.path(TINY, "letter")
    assert store.path(replace(TINY, split="file"), "letter") == store.path(TINY, "letter")
    assert store.path(replace(TINY, split="file"), "vehicle") != store.path(TINY, "vehicle")
    assert store.path(replace(TINY, ties="last"), "letter") == store.path(TINY, "letter")
    assert store.path(replace(TINY, refit="yes"), "letter") != store.path(TINY, "letter")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    out = tmp_path_factory.mktemp("search")
    protocols = [replace(TINY, trials=1, epochs=1), replace(TINY, trials=1, epochs=1, scaling="source")]
    said = []
    run_search(out, PLACE, protocols=protocols, say=said.append)
    printed = Numbers(
        {
            (metric, problem, cost, one.name): Value(0.5, 0.2, 10)
            for metric in METRICS
            for problem in BENCHMARK.problems
            for cost in TINY.costs
            for one in BENCHMARK.methods
        }
    )
    return out, protocols, printed, said


def test_a_search_continues_where_it_was_stopped(searched):
    out, protocols, _, said = searched
    assert len(said) == 2 * len(BENCHMARK.problems)
    files = {path: path.stat().st_mtime_ns for path in SearchStore(out).folder.iterdir()}
    victim = next(iter(files))
    victim.unlink()
    again = []
    run_search(out, PLACE, protocols=protocols, say=again.append)
    assert len(again) == 1
    changed = {path for path in SearchStore(out).folder.iterdir() if path.stat().st_mtime_ns != files[path]}
    assert changed == {victim}


@pytest.mark.slow
def test_dask_finds_what_this_machine_finds(searched, tmp_path):
    alone, protocols, _, _ = searched
    said = []
    run_search(
        tmp_path, PLACE, protocols=protocols[:1], problems=("vehicle", "yeast"), scheduler="local:2", say=said.append
    )
    assert len(said) == 2
    for problem in ("vehicle", "yeast"):
        found, expected = (SearchStore(out).read(protocols[0], problem) for out in (tmp_path, alone))
        assert [(one.method, one.test.tolist()) for one in found] == [
            (one.method, one.test.tolist()) for one in expected
        ]


def test_its_scores_are_those_of_the_tables_and_the_page_needs_only_the_summary(searched, tmp_path):
    out, protocols, printed, _ = searched
    store = SearchStore(out)
    found = score_all(store, printed, protocols)
    assert len(found) == 2 * len(ways_to_choose()) * len(BENCHMARK.problems)
    for one in found[:: len(found) // 23]:
        protocol = next(p for p in protocols if (p.scaling == "source") == ("source" in one.protocol))
        numbers = numbers_of(store.read(protocol, one.problem), one.way)
        assert one.agreement == agreement(numbers, printed, [one.problem])
    write_found(tmp_path, found)
    assert sorted(read_found(tmp_path), key=repr) == sorted(found, key=repr)
    page = protocol_page(found, trials=1, rows=150)
    assert page == protocol_page(read_found(tmp_path), trials=1, rows=150)
    assert f"{len(found) // len(BENCHMARK.problems)} in all" in page
    experiment = replace(BENCHMARK, protocol=protocols[1], more=())
    assert write_records(tmp_path, store, experiment) == len(BENCHMARK.problems)
    assert len(list(Store(tmp_path, "benchmark").records())) == len(BENCHMARK.problems) * len(BENCHMARK.methods)


def test_the_groups_were_fixed_and_are_all_there_is():
    assert {*CHOOSING, *CONFIRMING} == set(BENCHMARK.problems)
    assert BENCHMARK.problems[::2] == CHOOSING
    assert len(set(SPACE)) == len(SPACE)


def test_the_published_protocol_is_one_of_the_search():
    settings = {name: value for name, value in PUBLISHED_SETTINGS.items() if name not in ("ties", "thresholds")}
    assert replace(SPACE[0], **{"scaling": "source", "batch_size": 128, **settings}) in SPACE
    assert Way("risk", PUBLISHED_SETTINGS["ties"], PUBLISHED_SETTINGS["thresholds"]) in ways_to_choose()
    assert published_benchmark().more == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["protocol", "--quick"], "--quick is for experiments"),
        (["protocol", "--tables-only", "--published", "/nowhere"], "has no benchmark_tables.csv"),
        (["modern", "--protocol", "published"], "the published protocol is one of the benchmark, not of 'modern'"),
        (["benchmark", "--protocol", "mine"], "unknown protocol 'mine'; there are ours and published"),
    ],
)
def test_a_wrong_call_is_told_so(arguments, message, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert isinstance(done.exception, CallError)
    assert message in str(done.exception)
