"""Other ways to train the same networks: one hidden layer of 50, AMSGrad, batch 128."""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

HIDDEN, BATCH, LEARNING_RATE = 50, 128, 1e-3


def network(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_outputs))


def optimiser(model: nn.Module, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, amsgrad=True, weight_decay=weight_decay)


def plain_torch(X, y, n_outputs, epochs, weight_decay, loss, device) -> nn.Module:
    """Train as in the PyTorch tutorials: a DataLoader, a module, an optimiser."""
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    model = network(X.shape[1], n_outputs).to(device)
    adam = optimiser(model, weight_decay)
    for _ in range(epochs):
        for rows, labels in loader:
            adam.zero_grad()
            loss(model(rows.to(device)), labels.to(device)).mean().backward()
            adam.step()
    return model


def lean_torch(X, y, n_outputs, epochs, weight_decay, loss, device) -> nn.Module:
    """Train in PyTorch with the data as one tensor, shuffled by index."""
    rows, labels = torch.from_numpy(X).to(device), torch.from_numpy(y).to(device)
    model = network(X.shape[1], n_outputs).to(device)
    adam = optimiser(model, weight_decay)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows), device=device).split(BATCH):
            adam.zero_grad(set_to_none=True)
            loss(model(rows[batch]), labels[batch]).mean().backward()
            adam.step()
    return model


def scikit_learn(X, y, n_outputs, epochs, weight_decay, loss, device):
    """Train scikit-learn's MLPClassifier: Adam, cross-entropy, always on the CPU."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (HIDDEN,), batch_size=BATCH, learning_rate_init=LEARNING_RATE, alpha=weight_decay, max_iter=epochs, tol=0.0,
        n_iter_no_change=epochs + 1, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def skorch(X, y, n_outputs, epochs, weight_decay, loss, device):
    """Train skorch's NeuralNetClassifier without its printed log and validation split."""
    from skorch import NeuralNetClassifier

    model = NeuralNetClassifier(
        network, module__n_features=X.shape[1], module__n_outputs=n_outputs, criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam, optimizer__amsgrad=True, optimizer__weight_decay=weight_decay, lr=LEARNING_RATE,
        batch_size=BATCH, max_epochs=epochs, train_split=None, verbose=0, iterator_train__shuffle=True, device=device,
    )  # fmt: skip
    return model.fit(X, y)


RIVALS: dict[str, Callable] = {
    "PyTorch, DataLoader": plain_torch,
    "PyTorch, lean loop": lean_torch,
    "scikit-learn MLPClassifier": scikit_learn,
    "skorch": skorch,
}
ANY_LOSS = ("PyTorch, DataLoader", "PyTorch, lean loop")


def random_data(n_rows: int, n_features: int, n_classes: int, seed: int = 0):
    """Return rows that are normally distributed around one random point per class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = rng.normal(size=(n_classes, n_features))[y] + rng.normal(size=(n_rows, n_features))
    return X.astype(np.float32), y
