"""What a device may do to training: run out of memory, have another number, or not be there when a model is loaded."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from demur.errors import InputError, UserError
from demur.losses import get
from demur.training import MLP, Job, NetworkSpec, TrainingData, resolve_device, train, train_all
from demur.training.engine import DeviceMemoryError

CPU = torch.device("cpu")


def job(name="ce", n=90, d=4, k=3, own_units=False):
    rng = np.random.default_rng(0)
    data = TrainingData(
        torch.tensor(rng.normal(size=(n, d)), dtype=torch.float32), torch.tensor(rng.integers(k, size=n))
    )
    loss = get(name).for_classes(k)
    hyper = {"beta": 0.7} if loss.has_rejector else {}
    networks = [NetworkSpec(np.arange(n), seed, decay, 0.2, hyper) for seed in range(3) for decay in (0.0, 0.1, 1.0)]
    return Job(loss, MLP((d, 6, loss.n_outputs(k)), own_units=own_units), data, networks)


SHORT = {"epochs": 2, "batch_size": 32, "learning_rate": 0.01}


def test_too_little_memory_is_an_error_for_the_user(monkeypatch):
    def nothing(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(TrainingData, "to", nothing)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    with pytest.raises(DeviceMemoryError, match="does not have enough free memory") as caught:
        train_all([job()], **SHORT, device="cuda")
    assert isinstance(caught.value, UserError)


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match=r"'cuda:2' is not available: PyTorch sees 2 CUDA GPU\(s\), numbered from 0"):
        resolve_device("cuda:2")


def test_networks_are_stored_without_a_trace_of_their_device():
    one = job()
    trained = train(one.loss, one.architecture, one.data, one.networks[:2], epochs=1)
    state = trained.__getstate__()
    assert all(isinstance(state[name], np.ndarray) for name in ("vectors", "failed"))
    again = pickle.loads(pickle.dumps(trained))
    assert torch.equal(again.vectors, trained.vectors)


def test_a_rejector_with_separate_units_is_a_separate_network():
    """What the classes' units learn does not reach the rejector's, and each half starts as nn.Linear layers would."""
    one = job("mpc+log", own_units=True)
    (trained,) = train_all([one], epochs=3, batch_size=30, learning_rate=0.05)
    d, n_hidden, k = one.architecture.sizes
    start = (d + 1) * n_hidden
    last = trained.vectors[:, start : start + n_hidden * k].view(-1, k, n_hidden)
    assert bool((last[:, :-1, n_hidden // 2 :] == 0).all())
    assert bool((last[:, -1, : n_hidden // 2] == 0).all())
    assert bool((last[:, :-1, : n_hidden // 2] != 0).all())
    initial = one.architecture.stack([0], 1, CPU).vectors()[0][start : start + n_hidden * k]
    assert float(initial.abs().max()) <= (n_hidden // 2) ** -0.5
    assert float(initial.abs().max()) > n_hidden**-0.5
