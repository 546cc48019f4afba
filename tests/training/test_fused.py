"""One program per network trains as the engine does: on a GPU, or where Triton is installed without one, interpreted.

The interpreter has to be chosen before Triton is imported, so that these tests run in a process of their own.
"""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from demur.losses import AdditivePairwise, get
from demur.margins import Exponential, Logistic
from demur.training import MLP, Job, ModuleArchitecture, NetworkSpec, TrainingData, TrainingOptions
from demur.training.fused import can_fuse, train_fused

LOSSES = (
    "ce", "ova+log", "ova+exp", "ova+sq", "ova+sqhin", "ova+hin", "cs+hin", "bep", "apc+log", "apc+exp", "mpc+log",
    "mpc+exp",
)  # fmt: skip
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with the CUDA build of torch")


def job(name, *, weighted=False, n=150, d=9, k=5, device="cpu"):
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(n, d)), dtype=torch.float32)
    y = torch.tensor(rng.integers(k, size=n))
    weight = torch.tensor(rng.uniform(0.5, 2, n), dtype=torch.float32) if weighted else None
    loss = get(name).for_classes(k)
    networks = []
    for seed, rows in enumerate((np.arange(n), rng.permutation(n), rng.permutation(n)[:100])):
        for decay, cost in ((1e-4, 0.2), (0.1, 0.3)):
            hyper = {"beta": float(loss.beta_value(k, cost))} if loss.has_rejector else {}
            networks.append(NetworkSpec(rows, seed, decay, cost, hyper))
    data = TrainingData(X, y, weight).to(torch.device(device))
    return Job(loss, MLP((d, 7, loss.n_outputs(k))), data, networks)


def compare(names, device, precision, tolerance):
    """Train with both, print how far they are apart, and refuse more than the tolerance."""
    from demur.training import train_all

    for name in names:
        for weighted in (False, True):
            one = job(name, weighted=weighted, device=device)
            assert can_fuse(one)
            (expected,) = train_all([job(name, weighted=weighted)], epochs=3, batch_size=64)
            how = TrainingOptions(epochs=3, batch_size=64, device=device, on_cuda=precision)
            (found,) = train_fused([one], how)
            distance = float((found.vectors.cpu() - expected.vectors).abs().max())
            print(name, weighted, distance)
            assert not found.failed.any()
            assert distance < tolerance, (name, weighted, distance)


def compare_variants(device, precision, tolerance):
    """The same for a batch that is worked through in pieces, and a rejector with units of its own."""
    from demur.training import fused, train_all

    for name, own_units, rows in (("ova+hin", False, 32), ("mpc+log", True, 32), ("apc+log", True, 128)):
        fused._ROWS_AT_A_TIME = rows
        architecture = MLP((9, 14, job(name).architecture.sizes[-1]), own_units=own_units)
        (expected,) = train_all([replace(job(name), architecture=architecture)], epochs=3, batch_size=70)
        how = TrainingOptions(epochs=3, batch_size=70, device=device, on_cuda=precision)
        (found,) = train_fused([replace(job(name, device=device), architecture=architecture)], how)
        distance = float((found.vectors.cpu() - expected.vectors).abs().max())
        assert not found.failed.any()
        assert distance < tolerance, (name, own_units, distance)


@needs_triton
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel itself is tried below")
def test_interpreted_it_agrees_for_every_loss():
    script = f"import sys; sys.path.insert(0, {__file__.rsplit('/', 1)[0]!r}); import test_fused as t; " + (
        "import demur.training.fused as fused; fused._MOST_ORDER = 3 * 2 * 192; "  # several launches
        "t.compare(t.LOSSES, 'cpu', 'ieee', 1e-6); t.compare_variants('cpu', 'ieee', 1e-6)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**_environment(), "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0, done.stderr


def _environment():
    import os

    return dict(os.environ)


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("precision", "tolerance"), [("ieee", 1e-5), ("tf32x3", 1e-5), ("tf32", 3e-3)])
def test_on_a_gpu_it_agrees_for_every_loss(precision, tolerance):
    compare(LOSSES, "cuda", precision, tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("demur.training.fused._ROWS_AT_A_TIME", 128)  # and back, whatever the variants set
        compare_variants("cuda", precision, tolerance)


@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_runs_repeat_exactly():
    how = TrainingOptions(epochs=5, batch_size=64, device="cuda")
    found = [train_fused([job("ce", device="cuda")], how)[0].vectors for _ in range(2)]
    assert torch.equal(*found)


def test_what_it_does_not_know_is_left_to_the_engine(monkeypatch):
    monkeypatch.setattr("demur.training.fused.find_spec", lambda name: object())
    known = job("apc+log")
    assert can_fuse(known)
    mixed = AdditivePairwise(Logistic(), Exponential(), beta=1.0)
    networks = [NetworkSpec(known.networks[0].rows)]

    class Own(type(known.loss)):
        """A subclass may have another gradient."""

    for loss, architecture in (
        (mixed, known.architecture),
        (Own(Logistic(), beta=1.0), known.architecture),
        (get("apc+log"), known.architecture),  # beta is a word, and no network gives a number
        (get("ce"), MLP((9, 7, 7, 5))),
        (get("ce"), MLP((500, 500, 5))),
        (get("ce"), ModuleArchitecture(lambda d, k: torch.nn.Linear(d, k), 9, 5)),
    ):
        assert not can_fuse(Job(loss, architecture, known.data, networks))
    monkeypatch.setattr("demur.training.fused.find_spec", lambda name: None)
    assert not can_fuse(known)
