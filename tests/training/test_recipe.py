"""Networks for tables and their recipe: what a network learns depends on its specification alone."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from demur.losses import available, get
from demur.training import (
    NetworkSpec,
    PeriodicEmbeddings,
    Recipe,
    TabularNet,
    TrainingData,
    recipe,
    train,
    train_tabular,
)
from demur.training.architecture import generator_of
from demur.training.tabular_net import _factor, _inputs
from demur.training.training_step import Batches

EMBEDDED = PeriodicEmbeddings(n_frequencies=4, n_outputs=2)
SHORT = Recipe(epochs=4, batch_size=40)
CE = get("ce")


def data(n=200, d=5, k=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    X = 1.5 * rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    return TrainingData(torch.from_numpy(X.astype(np.float32)), torch.from_numpy(y))


def folds(n=200, n_folds=5, **options):
    """Cross-fitting: networks whose rows differ, also in number."""
    fold = np.random.default_rng(0).permutation(n) % n_folds
    return [
        NetworkSpec(np.flatnonzero(fold != k), seed=k, validation=np.flatnonzero(fold == k), **options)
        for k in range(n_folds)
    ]


def net(loss="ce", d=5, k=4, hidden=(12, 7), embeddings=None):
    return TabularNet(d, get(loss).for_classes(k).n_outputs(k), hidden, embeddings)


@pytest.fixture
def stacks_of(monkeypatch):
    """Set how many networks a stack may hold."""
    return lambda size: monkeypatch.setattr(recipe, "stack_size", lambda *arguments: size)


def same(one, other, atol=2e-5):
    return torch.allclose(one.trained.vectors, other.trained.vectors, atol=atol)


@pytest.mark.parametrize(("loss", "embeddings"), [("ce", None), ("ce", EMBEDDED), ("ova+log", None), ("apc+log", None)])
def test_a_network_does_not_depend_on_its_company(loss, embeddings, stacks_of):
    hyper = {"beta": 2.0} if get(loss).has_rejector else {}
    specs = folds(203, hyper=hyper)  # 162 or 163 rows
    specs += [NetworkSpec(np.arange(60), seed=9, hyper=hyper)]
    train_on = lambda some, **options: train_tabular(  # noqa: E731
        get(loss), net(loss, embeddings=embeddings), data(203), some, recipe=SHORT, **options
    )
    together = train_on(specs, n_workers=1)
    for size, n_workers in ((1, 1), (2, 2)):
        stacks_of(size)
        assert same(train_on(specs, n_workers=n_workers), together)
    for position in (0, 5):
        alone = train_on(specs[position : position + 1])
        assert torch.allclose(alone.trained.vectors[0], together.trained.vectors[position], atol=2e-5)
        assert alone.best_epoch[0] == together.best_epoch[position]


def test_networks_of_different_decays_and_costs_share_a_stack():
    rows = np.arange(150)
    specs = [
        NetworkSpec(rows, 0, weight_decay=decay, cost=cost, hyper={"beta": beta})
        for decay, cost, beta in [(0.02, 0.2, 2.0), (0.5, 0.2, 2.0), (0.02, 0.4, 2.0), (0.02, 0.2, 5.0)]
    ]
    together = train_tabular(get("apc+log"), net("apc+log"), data(), specs, recipe=SHORT, n_workers=1)
    for position, one in enumerate(specs):
        alone = train_tabular(get("apc+log"), net("apc+log"), data(), [one], recipe=SHORT)
        assert torch.allclose(alone.trained.vectors[0], together.trained.vectors[position], atol=2e-5)
        if position:
            assert not torch.allclose(alone.trained.vectors[0], together.trained.vectors[0], atol=1e-3)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_bit_identical_from_run_to_run(n_workers):
    runs = [train_tabular(CE, net(), data(), folds(), recipe=SHORT, n_workers=n_workers) for _ in range(2)]
    assert torch.equal(runs[0].trained.vectors, runs[1].trained.vectors)
    assert np.array_equal(runs[0].validation_loss, runs[1].validation_loss)


@pytest.mark.parametrize("dropping", [False, True])
@pytest.mark.parametrize("embeddings", [None, EMBEDDED])
@torch.no_grad()
def test_gradients_are_autograds(embeddings, dropping):
    """The folded network, with the units that were dropped, differentiated by autograd."""
    shape = net(embeddings=embeddings)
    stack = shape.stack([1, 2], 2, torch.device("cpu"))
    x, y, weight = torch.randn(2, 9, 5), torch.randint(4, (2, 9)), torch.rand(2, 9)
    stack.adapt(list(x))
    stack.dropping, stack.drop = dropping, torch.tensor([0.3, 0.5])
    scores = stack.forward(x)
    keep = stack._keep
    stack.backward(CE.score_gradient(scores, y, None, weight))
    with torch.enable_grad():
        leaf = stack.parameters.clone().requires_grad_()
        stack._parts = stack._views(leaf)
        parts = stack.folded()
        activation = shape.scores(stack.vectors(), x).transpose(1, 2)
        if dropping:
            activation = _inputs(shape, parts, x).transpose(1, 2)
            for depth in range(3):
                activation = parts[f"weight{depth}"] @ activation + parts[f"bias{depth}"]
                if depth < 2:
                    bent = torch.selu(activation)
                    activation = torch.lerp(activation, bent, parts[f"blend{depth}"]) * keep[depth]
        assert torch.allclose(activation.transpose(1, 2), scores, atol=1e-5)
        (expected,) = torch.autograd.grad((CE.forward(activation.transpose(1, 2), y, None) * weight).sum(), leaf)
    assert torch.allclose(stack.gradients, expected, atol=1e-5)
    assert (expected != 0).float().mean() > 0.8


@pytest.mark.parametrize("embeddings", [None, EMBEDDED])
def test_equals_adam_with_a_rate_for_each_kind_of_parameter(embeddings):
    """Scales learn 6 times as fast, all but the weights at a tenth; all but the biases decay, as in torch's AdamW."""
    shape, content, rows = net(embeddings=embeddings), data(), np.arange(64)
    spec = NetworkSpec(rows, seed=7, weight_decay=0.5)
    how = Recipe(epochs=5, batch_size=32, learning_rate=0.02, dropout=0.0)
    ours = train_tabular(CE, shape, content, [spec], recipe=how)

    stack = shape.stack([7], 1, torch.device("cpu"))
    stack.adapt([content.X[recipe._sample(spec, content)]])
    kinds = {name: torch.nn.Parameter(part[0] * _factor(name)) for name, part in stack._parts.items()}
    groups = [
        {
            "params": [part],
            "factor": _factor(name),
            "decays": not name.startswith("bias"),
        }
        for name, part in kinds.items()
    ]
    adam = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    generator = generator_of(7, "order of rows")

    def scores(x):
        stack._parts = {name: part.unsqueeze(0) / _factor(name) for name, part in kinds.items()}
        return shape.scores(stack.vectors(), x)[0]

    for step in range(10):
        if step % 2 == 0:
            order = torch.from_numpy(rows)[torch.randperm(64, generator=generator)]
        batch, t = order[step % 2 * 32 :][:32], np.array((step + 0.5) / 10)
        for group in adam.param_groups:
            group["lr"] = 0.02 * float(Recipe().rate(t)) * group["factor"]
            group["weight_decay"] = 0.5 * float(Recipe().fade(t)) * group["decays"]
        adam.zero_grad()
        torch.nn.functional.cross_entropy(scores(content.X[batch]), content.y[batch]).backward()
        adam.step()
    with torch.no_grad():
        assert torch.allclose(ours.trained.scores(content.X)[0], scores(content.X), atol=2e-4)


@pytest.mark.parametrize("loss", available(n_classes=4))
@pytest.mark.slow
def test_every_loss_trains(loss):
    found = get(loss).for_classes(4)
    hyper = {"beta": float(found.beta_value(4, 0.2))} if found.has_rejector else {}
    spec = NetworkSpec(np.arange(200), 0, cost=0.2, hyper=hyper)
    how = Recipe(epochs=30, batch_size=64, learning_rate=0.01)
    run = train_tabular(found, net(loss), data(), [spec], recipe=how)
    assert not run.trained.failed.any()
    assert run.training_loss[0, -1] < 0.8 * run.training_loss[0, 0]


def test_it_learns():
    content = data(400)
    run = train_tabular(CE, net(hidden=(64, 64)), content, folds(400), recipe=Recipe(epochs=30, batch_size=64))
    wrong = run.trained.scores(content.X).argmax(-1) != content.y
    plain = torch.cdist(content.X, torch.stack([content.X[content.y == k].mean(0) for k in range(4)])).argmin(1)
    assert wrong.float().mean() <= (plain != content.y).float().mean()


@pytest.mark.parametrize("loss", ["ce", "ova+log"])
def test_epochs_are_compared_at_their_best_temperatures(loss):
    found = get(loss)
    run = train_tabular(found, net(loss), data(), folds()[:3], recipe=replace(SHORT, epochs=25, learning_rate=0.1))
    scales = torch.linspace(-4, 5, 1201, dtype=torch.float64).exp()
    for position, spec in enumerate(folds()[:3]):
        rows = torch.from_numpy(spec.validation)
        scores = run.trained.scores(data().X[rows])[position].double()
        best = found(scales[:, None, None] * scores, data().y[rows].expand(1201, -1)).mean(1).min()
        assert run.validation_loss[position].min() == pytest.approx(float(best), rel=2e-3)


def test_the_best_epoch_is_kept():
    scales = torch.linspace(-4, 5, 1201, dtype=torch.float64).exp()
    run = train_tabular(CE, net(), data(), folds(), recipe=replace(SHORT, epochs=12))
    assert run.complete
    for position, spec in enumerate(folds()):
        curve = run.validation_loss[position]
        assert run.best_epoch[position] == curve.argmin() + 1
        rows = torch.from_numpy(spec.validation)
        scores = run.trained.scores(data().X[rows])[position].double()
        again = CE(scales[:, None, None] * scores, data().y[rows].expand(1201, -1)).mean(1).min()
        assert float(again) == pytest.approx(curve.min(), rel=1e-3)


def test_a_network_without_improvement_stops_as_it_would_alone():
    """The labels are noise, so that the loss on other rows soon rises; each network loses patience by itself."""
    rng = np.random.default_rng(0)
    noise = TrainingData(torch.randn(200, 5), torch.from_numpy(rng.integers(4, size=200)))
    patient = replace(SHORT, epochs=24, patience=2)
    together = train_tabular(CE, net(), noise, folds(), recipe=patient, n_workers=1)
    n_epochs = np.isfinite(together.validation_loss).sum(1)
    np.testing.assert_array_equal(n_epochs, together.best_epoch + 2)
    assert n_epochs.max() < 24
    assert together.complete
    alone = train_tabular(CE, net(), noise, folds()[:1], recipe=patient)
    assert torch.allclose(alone.trained.vectors[0], together.trained.vectors[0], atol=2e-5)
    np.testing.assert_array_equal(np.isfinite(alone.training_loss).sum(1), n_epochs[:1])
    whole = train_tabular(CE, net(), noise, folds(), recipe=replace(patient, patience=None))
    np.testing.assert_allclose(  # until then nothing differs
        together.validation_loss[:, 0], whole.validation_loss[:, 0], rtol=1e-4
    )


def test_without_validation_rows_it_is_the_last():
    specs = [replace(folds()[0], validation=None), folds()[0]]
    run = train_tabular(CE, net(), data(), specs, recipe=SHORT, n_workers=1)
    assert run.best_epoch[0] == 4
    assert np.isnan(run.validation_loss[0]).all()
    assert np.isfinite(run.validation_loss[1]).all()


def test_equal_weights_change_nothing():
    plain = train_tabular(CE, net(), data(), folds(), recipe=SHORT)
    weighted = train_tabular(CE, net(), replace(data(), weight=torch.full((200,), 4.0)), folds(), recipe=SHORT)
    assert same(plain, weighted)
    assert np.allclose(plain.validation_loss, weighted.validation_loss, rtol=1e-5)


def test_weight_2_is_a_row_that_is_there_twice(monkeypatch):
    """In the loss: with one batch an epoch, no dropout, and the same start."""
    monkeypatch.setattr(recipe, "_sample", lambda spec, data: torch.arange(20))
    rows = np.arange(60)
    weight = torch.ones(200)
    weight[10:25] = 2.0
    weight[100:120] = 3.0
    once = [NetworkSpec(rows, 0, validation=np.arange(100, 150))]
    held_out = np.repeat(np.arange(100, 150), weight[100:150].int())
    repeated = [NetworkSpec(np.repeat(rows, weight[rows].int()), 0, validation=held_out)]
    whole = Recipe(epochs=6, batch_size=100, dropout=0.0)
    weighted = train_tabular(CE, net(), replace(data(), weight=weight), once, recipe=whole)
    copied = train_tabular(CE, net(), data(), repeated, recipe=whole)
    assert same(weighted, copied, atol=1e-4)
    assert np.allclose(weighted.training_loss, copied.training_loss, rtol=1e-3)
    assert np.allclose(weighted.validation_loss, copied.validation_loss, rtol=1e-3)


def test_rows_without_weight_teach_nothing():
    weight = torch.ones(200)
    weight[60:] = 0.0
    content = replace(data(), weight=weight)
    changed = replace(content, y=torch.where(weight > 0, content.y, 0), X=content.X * weight[:, None])
    specs = [NetworkSpec(np.arange(100), 0, validation=np.arange(50, 100))]
    assert torch.equal(
        train_tabular(CE, net(), content, specs, recipe=SHORT).trained.vectors,
        train_tabular(CE, net(), changed, specs, recipe=SHORT).trained.vectors,
    )


def test_a_class_that_a_fold_has_never_seen():
    content = data()
    seen = np.flatnonzero(content.y.numpy() != 2)
    spec = NetworkSpec(seen[:100], 0, validation=np.flatnonzero(content.y.numpy() == 2))
    run = train_tabular(CE, net(), content, [spec], recipe=SHORT)
    assert np.isfinite(run.validation_loss).all()
    assert run.trained.scores(content.X).isfinite().all()


def test_networks_that_diverge_are_marked_and_hold_no_nan():
    specs = [NetworkSpec(np.arange(100), 0, weight_decay=decay) for decay in (0.02, 1e38)]
    run = train_tabular(CE, net(), data(), specs, recipe=SHORT, n_workers=1)
    assert run.trained.failed.tolist() == [False, True]
    assert run.trained.vectors.isfinite().all()
    alone = train_tabular(CE, net(), data(), specs[:1], recipe=SHORT)
    assert torch.allclose(alone.trained.vectors[0], run.trained.vectors[0], atol=2e-5)


class Clock:
    """A clock on which every look takes a second."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


def test_a_deadline_compresses_the_schedule(monkeypatch):
    rates = []
    original = recipe._Step.__call__

    def step(self, rows, weight, knobs):
        rates.append(float(knobs[0, 0]))
        original(self, rows, weight, knobs)

    monkeypatch.setattr(recipe._Step, "__call__", step)
    monkeypatch.setattr(recipe, "time", Clock())
    spec = NetworkSpec(np.arange(160), 0, validation=np.arange(160, 200))
    run = train_tabular(CE, net(), data(), [spec], recipe=Recipe(epochs=200, batch_size=32), deadline=300.0)
    assert not run.complete
    n_epochs = run.validation_loss.shape[1]
    assert 20 < n_epochs < 200
    assert len(rates) / 5 == pytest.approx(n_epochs, abs=1)
    assert rates[-1] < 0.1 * max(rates)  # the last cycle has come to its end
    assert run.best_epoch[0] == run.validation_loss[0].argmin() + 1
    assert not run.trained.failed.any()


def test_a_deadline_that_has_passed_leaves_networks_that_know_nothing(monkeypatch):
    monkeypatch.setattr(recipe, "time", Clock())
    run = train_tabular(CE, net(), data(), folds(), recipe=SHORT, deadline=0.5)
    assert not run.complete
    assert run.best_epoch.tolist() == [0] * 5
    assert run.validation_loss.shape == (5, 0)
    assert run.trained.scores(data().X).isfinite().all()
    assert not run.trained.failed.any()


def test_a_deadline_in_the_first_epoch_keeps_what_was_learnt(monkeypatch):
    monkeypatch.setattr(recipe, "time", Clock())
    spec = NetworkSpec(np.arange(160), 0, validation=np.arange(160, 200))
    run = train_tabular(CE, net(), data(), [spec], recipe=Recipe(epochs=9, batch_size=4), deadline=20.0)
    assert not run.complete
    assert run.best_epoch.tolist() == [1]
    assert np.isfinite(run.validation_loss).all()


def test_a_deadline_far_away_changes_nothing():
    free = train_tabular(CE, net(), data(), folds(), recipe=SHORT)
    limited = train_tabular(CE, net(), data(), folds(), recipe=SHORT, deadline=float("inf"))
    assert limited.complete
    assert torch.equal(free.trained.vectors, limited.trained.vectors)


def test_progress_counts_the_epochs_of_all_networks():
    counts = []
    train_tabular(CE, net(), data(), folds(), recipe=SHORT, n_workers=2, progress=counts.append)
    assert sum(counts) == 5 * 4


@pytest.mark.parametrize("n_workers", [1, 2])
def test_an_interrupt_ends_all_workers(n_workers):
    before = threading.active_count()

    def interrupt(steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tabular(CE, net(), data(), folds(), recipe=Recipe(epochs=10**6), n_workers=n_workers, progress=interrupt)
    assert threading.active_count() == before


@torch.no_grad()
def test_as_many_units_are_dropped_as_asked_for():
    shape = net(hidden=(64, 40))
    stack = shape.stack([1, 2, 3], 3, torch.device("cpu"))
    stack.dropping, stack.drop = True, torch.tensor([0.0, 0.15, 0.6])
    shares = []
    for _ in range(30):
        stack.forward(torch.randn(3, 50, 5))
        kept = stack._keep
        shares.append([(part == 0).float().mean((1, 2)) for part in kept])
        for part in kept:
            assert part.mean((1, 2)) == pytest.approx(torch.ones(3), abs=0.12)  # 1 on average
    means = torch.stack([torch.stack(one) for one in shares]).mean((0, 1))
    assert means == pytest.approx(torch.tensor([0.0, 0.15, 0.6]), abs=0.01)
    stack.forward(torch.randn(3, 50, 5))
    assert not torch.equal(kept[0][1], stack._keep[0][1])


@pytest.mark.parametrize("embeddings", [None, EMBEDDED])
def test_a_trained_network_is_a_plain_module(embeddings):
    run = train_tabular(CE, net(embeddings=embeddings), data(), folds(), recipe=SHORT)
    for member in (0, 3):
        module = run.trained.module(member)
        assert torch.allclose(module(data().X), run.trained.scores(data().X)[member], atol=1e-5)
        assert sum(part.numel() for part in module.parameters()) == run.trained.architecture.n_parameters


def test_the_other_engine_takes_the_architecture_too():
    specs = [NetworkSpec(np.arange(150), seed) for seed in (0, 0, 1)]
    together = train(CE, net(), data(), specs, epochs=5)
    alone = train(CE, net(), data(), specs[2:], epochs=5)
    assert torch.allclose(together.vectors[2], alone.vectors[0], atol=1e-5)
    assert torch.allclose(together.vectors[0], together.vectors[1], atol=1e-6)


@pytest.mark.parametrize("even", [False, True])
def test_an_epoch_has_every_row_once(even):
    for n, size in ((1, 32), (31, 32), (47, 32), (49, 32), (1000, 256), (12033, 256)):
        batches = Batches([np.arange(n)], [0], size, even=even)
        order, weight = batches.shuffle()[0], batches.weight[0]
        assert sorted(order[weight > 0].tolist()) == list(range(n))
        assert torch.allclose(weight.sum(1), torch.ones(batches.n_steps))
        counts = (weight > 0).sum(1)
        if even:
            assert counts.max() - counts.min() <= 1
            assert counts.max() <= max(1.5 * size, n if batches.n_steps == 1 else 0)
        else:
            assert (counts[:-1] == size).all()
