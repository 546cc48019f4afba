"""The forward pass of trained networks: one for NumPy arrays and for tensors."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from demur.training import MLP, ModuleArchitecture, PeriodicEmbeddings, TabularNet, Trained

NETWORKS = {
    "perceptron": MLP((7, 9, 3)),
    "deep perceptron": MLP((7, 9, 5, 3)),
    "for tables": TabularNet(7, 3, (32, 16)),
    "periodic": TabularNet(7, 3, (32,), PeriodicEmbeddings(4, 3)),
    "module": ModuleArchitecture(lambda n_in, n_out: torch.nn.Linear(n_in, n_out), 7, 3),
}


@pytest.fixture(params=NETWORKS)
def trained(request):
    architecture = NETWORKS[request.param]
    vectors = torch.randn(2, architecture.vector_length, generator=torch.Generator().manual_seed(0)) / 3
    return Trained(architecture, vectors, torch.zeros(2, dtype=torch.bool))


ROWS = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float32)


def test_arrays_tensors_and_modules_have_the_same_scores(trained):
    scores = trained.scores_of_arrays(ROWS)
    assert scores.shape == (2, 300, 3)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, trained.scores(torch.from_numpy(ROWS)), atol=2e-6, rtol=1e-6)
    for member in range(2):
        module = trained.module(member)(torch.from_numpy(ROWS)).detach()
        np.testing.assert_allclose(scores[member], module, atol=2e-6, rtol=1e-6)
    whole = torch.arange(14).view(2, 7)
    assert torch.equal(trained.scores(whole), trained.scores(whole.float()))
    double = trained.scores(torch.from_numpy(ROWS).double())
    assert double.dtype == torch.float64
    np.testing.assert_allclose(scores, double, atol=2e-6, rtol=1e-6)


def test_a_row_has_the_same_scores_among_others_and_in_a_stack(trained):
    scores = trained.scores_of_arrays(ROWS)
    for n_rows in (0, 1, 2, 65):
        np.testing.assert_allclose(trained.scores_of_arrays(ROWS[:n_rows]), scores[:, :n_rows], atol=2e-6, rtol=1e-6)
    np.testing.assert_allclose(trained.take([1]).scores_of_arrays(ROWS)[0], scores[1], atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["perceptron", "periodic"])
def test_each_network_may_have_its_own_rows(name):
    architecture = NETWORKS[name]
    vectors = np.random.default_rng(1).normal(size=(2, architecture.vector_length)).astype(np.float32) / 3
    own = np.stack([ROWS, ROWS[::-1]])
    scores = architecture.scores(vectors, own)
    for member in range(2):
        alone = architecture.scores(vectors[member : member + 1], own[member])[0]
        np.testing.assert_allclose(scores[member], alone, atol=2e-6, rtol=1e-6)


def test_the_module_of_a_network_for_tables_can_be_trained():
    architecture = NETWORKS["periodic"]
    module = architecture.module(torch.randn(architecture.vector_length) / 3)
    module(torch.from_numpy(ROWS)).square().mean().backward()
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in module.parameters())


@pytest.mark.slow
def test_loaded_networks_predict_without_torch(tmp_path):
    architecture = NETWORKS["for tables"]
    trained = Trained(architecture, torch.ones(1, architecture.vector_length), torch.zeros(1, dtype=torch.bool))
    (tmp_path / "networks").write_bytes(pickle.dumps(trained))
    program = (
        "import pickle, sys, numpy as np; networks = pickle.load(open('networks', 'rb')); "
        "print(networks.scores_of_arrays(np.ones((1, 7), np.float32)).sum() > 0, 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]
