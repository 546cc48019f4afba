"""The laws of training on a CUDA device, where there is one."""

import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from demur import RejectClassifier
from demur.losses import get
from demur.training import (
    MLP,
    Job,
    ModuleArchitecture,
    NetworkSpec,
    PeriodicEmbeddings,
    Recipe,
    TabularNet,
    TrainingData,
    train,
    train_all,
    train_tabular,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def problem(loss, n=400, d=5, k=4):
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=n)
    X = (rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))).astype(np.float32)
    hyper = {"beta": float(get(loss).beta_value(k, 0.2))} if get(loss).has_rejector else {}
    rows = [np.random.default_rng(t).permutation(n)[:300] for t in range(10)]
    networks = [NetworkSpec(rows[t], t, w, 0.2, hyper) for t in range(10) for w in (1e-7, 1e-4, 1e-1)]
    return (
        get(loss),
        MLP((d, 16, get(loss).n_outputs(k))),
        TrainingData(torch.from_numpy(X), torch.from_numpy(y)),
        networks,
    )


@pytest.mark.parametrize("loss", ["ce", "apc+log", "mpc+log", "apc+exp", "ova+log", "ova+hin"])
def test_company_does_not_matter_and_runs_repeat(loss):
    found, shape, data, networks = problem(loss)
    many = train(found, shape, data, networks, epochs=20, device="cuda")
    again = train(found, shape, data, networks, epochs=20, device="cuda")
    assert torch.equal(many.vectors, again.vectors)
    for options in ({"stack_size": 1}, {"stack_size": 7}):
        other = train(found, shape, data, networks, epochs=20, device="cuda", **options)
        assert torch.allclose(other.vectors, many.vectors, atol=1e-5)
    on_cpu = train(found, shape, data, networks, epochs=2, device="cpu")
    for path, tolerance in (("ieee", 1e-4), ("tf32x3", 1e-4), ("tf32", 1e-2)):
        on_gpu = train(found, shape, data, networks, epochs=2, device="cuda", on_cuda=path)
        assert torch.allclose(on_cpu.vectors, on_gpu.vectors.cpu(), atol=tolerance), path


def test_an_epoch_of_a_single_step():
    found, shape, data, networks = problem("ce")
    small = [NetworkSpec(network.rows[:100], network.seed) for network in networks]
    on_gpu = train(found, shape, data, small, epochs=3, device="cuda", on_cuda="ieee")
    assert torch.allclose(on_gpu.vectors.cpu(), train(found, shape, data, small, epochs=3).vectors, atol=1e-4)


def test_a_module_trains_there_as_the_perceptron_does():
    found, shape, data, networks = problem("ce")
    own = ModuleArchitecture(lambda d, k: nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, k)), 5, 4)
    module = train(found, own, data, networks[:2], epochs=2, device="cuda")
    assert torch.allclose(module.vectors.cpu(), train(found, shape, data, networks[:2], epochs=2).vectors, atol=1e-4)


def test_jobs_side_by_side_equal_jobs_alone():
    jobs = [Job(*problem(loss)) for loss in ("ce", "apc+log", "mpc+log", "ova+hin")]
    for job, together in zip(jobs, train_all(jobs, epochs=20, device="cuda"), strict=True):
        alone = train(job.loss, job.architecture, job.data, job.networks, epochs=20, device="cuda")
        assert torch.allclose(alone.vectors, together.vectors, atol=1e-5)


def test_a_model_fitted_there_is_loaded_where_there_is_none(tmp_path):
    """Without a GPU, from the model folder alone, the same answers."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = 3 * rng.normal(size=(3, 4))[y] + rng.normal(size=(300, 4))
    model = RejectClassifier(device="cuda", random_state=0, epochs=20).fit(X, y)
    np.savez(tmp_path / "rows.npz", X=X, labels=model.predict(X))
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    script = (
        "import pickle, sys, numpy as np, torch; assert not torch.cuda.is_available(); "
        "rows = np.load('rows.npz'); model = pickle.load(open('model.pickle', 'rb')); "
        "assert (model.predict(rows['X']) == rows['labels']).mean() > 0.99"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_two_processes_share_one_card():
    script = (
        "import numpy as np, torch; from demur.losses import get; from demur.training import *; "
        "X, y = torch.randn(4000, 8), torch.randint(4, (4000,)); "
        "grid = [NetworkSpec(np.arange(4000), seed) for seed in range(200)]; "
        "found = train(get('ce'), MLP((8, 50, 4)), TrainingData(X, y), grid, epochs=20, device='cuda'); "
        "assert not found.failed.any()"
    )
    both = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        _, errors = one.communicate(timeout=300)
        assert one.returncode == 0, errors


def test_the_estimator_runs_there():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = 3 * rng.normal(size=(3, 4))[y] + rng.normal(size=(300, 4))
    model = RejectClassifier(device="cuda", random_state=0, epochs=60).fit(X, y)
    assert -model.score(X, y) < 0.2


@pytest.mark.parametrize("embeddings", [None, PeriodicEmbeddings(4, 2)])
@pytest.mark.parametrize("loss", ["ce", "apc+log", "ova+hin"])
def test_the_recipe_trains_there_as_on_the_cpu(loss, embeddings, monkeypatch):
    """Graphs, dropout and schedule give what the CPU gives, up to rounding, and the same in any company."""
    found, _, data, networks = problem(loss)
    net = TabularNet(5, found.n_outputs(4), (16, 12), embeddings)
    specs = [
        NetworkSpec(one.rows[: 240 + number], number, cost=0.2, hyper=one.hyper, validation=one.rows[260:])
        for number, one in enumerate(networks[::3])
    ]
    short = Recipe(epochs=6, batch_size=32, learning_rate=0.01)
    on_gpu = train_tabular(found, net, data, specs, recipe=short, device="cuda")
    again = train_tabular(found, net, data, specs, recipe=short, device="cuda")
    assert torch.equal(on_gpu.trained.vectors, again.trained.vectors)
    on_cpu = train_tabular(found, net, data, specs, recipe=short)
    for stack_size in (1, 3):
        monkeypatch.setattr("demur.training.recipe._stack_size", lambda *_, size=stack_size: size)
        other = train_tabular(found, net, data, specs, recipe=short, device="cuda")
        assert torch.allclose(other.trained.vectors, on_gpu.trained.vectors, atol=1e-3)
    assert np.allclose(on_gpu.training_loss, on_cpu.training_loss, atol=1e-3)
    assert np.allclose(on_gpu.validation_loss, on_cpu.validation_loss, atol=1e-3)


def test_the_recipe_keeps_its_deadline_there():
    found, _, data, networks = problem("ce")
    specs = [NetworkSpec(one.rows[:250], one.seed, validation=one.rows[250:]) for one in networks[::3]]
    net = TabularNet(5, 4, (64, 64))
    run = train_tabular(
        found, net, data, specs, recipe=Recipe(epochs=10**5), device="cuda", deadline=time.monotonic() + 2
    )
    assert not run.complete
    assert (run.best_epoch > 0).all()
