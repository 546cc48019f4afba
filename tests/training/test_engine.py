"""The stacked engine: what a network learns depends on its specification alone."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from demur.losses import available, get
from demur.training import MLP, Job, ModuleArchitecture, NetworkSpec, TrainingData, train, train_all
from demur.training.architecture import generator_of
from demur.training.engine import plan_chunks


def data(n=400, d=5, k=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    return TrainingData(torch.from_numpy(X.astype(np.float32)), torch.from_numpy(y))


def grid(n=400, trials=4, loss="ce", k=4):
    """A grid as in the paper: splits, weight decays and, for the pairwise losses, costs and betas."""
    networks = []
    for t in range(trials):
        rows = np.random.default_rng(t).permutation(n)[: int(0.8 * n)]
        for cost in (0.1, 0.3):
            hyper = {"beta": float(get(loss).beta_value(k, cost)), "alpha": 1.5} if get(loss).has_rejector else {}
            networks += [NetworkSpec(rows, t, w, cost, hyper) for w in (1e-7, 1e-4, 1e-1)]
    return networks


def architecture(loss, d=5, k=4, hidden=(16,)):
    return MLP((d, *hidden, get(loss).n_outputs(k)))


@pytest.mark.parametrize(
    ("loss", "hidden"),
    [
        ("ce", ()),
        ("mpc+log", (8, 8)),
        *[(loss, (16,)) for loss in ("ova+log", "apc+log", "ova+hin", "bep")],
    ],
)
def test_a_network_does_not_depend_on_its_company(loss, hidden):
    networks, shape = grid(loss=loss), architecture(loss, hidden=hidden)
    many = train(get(loss), shape, data(), networks, epochs=4, stack_size=30, n_workers=1)
    for options in ({"stack_size": 1}, {"stack_size": 7, "n_workers": 2}):
        other = train(get(loss), shape, data(), networks, epochs=4, **options)
        assert torch.allclose(other.vectors, many.vectors, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(networks))
    shuffled = train(get(loss), shape, data(), [networks[i] for i in order], epochs=4)
    assert torch.allclose(shuffled.vectors, many.vectors[order], atol=1e-5)
    alone = train(get(loss), shape, data(), networks[5:6], epochs=4)
    assert torch.allclose(alone.vectors[0], many.vectors[5], atol=1e-5)


@pytest.mark.parametrize(("d", "k"), [(54, 7), (8, 10)])
def test_sizes_that_fill_no_vector_register(d, k):
    """Stacks whose numbers do not fill the last vector register of the processor."""
    content, shape = data(n=500, d=d, k=k), MLP((d, 50, k))
    many = train(get("ce"), shape, content, grid(n=500), epochs=3, stack_size=100)
    for stack_size in (1, 4):
        other = train(get("ce"), shape, content, grid(n=500), epochs=3, stack_size=stack_size)
        assert torch.allclose(other.vectors, many.vectors, atol=1e-5)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_bit_identical_from_run_to_run(n_workers):
    runs = [
        train(get("apc+exp"), architecture("apc+exp"), data(), grid(loss="apc+exp"), epochs=5, n_workers=n_workers)
        for _ in range(2)
    ]
    assert torch.equal(runs[0].vectors, runs[1].vectors)


QUICKLY_TRIED = ("apc+log", "bep", "brier", "ce", "cs+hin", "gamblers", "ms", "ova+log", "vn")


@pytest.mark.parametrize(
    "loss", [pytest.param(name, marks=() if name in QUICKLY_TRIED else pytest.mark.slow) for name in available(4)]
)
def test_every_loss_trains(loss):
    rows = np.arange(400)
    found = get(loss).for_classes(4)
    hyper = {"beta": float(found.beta_value(4, 0.2))} if found.has_rejector else {}
    trained = train(found, architecture(loss), data(), [NetworkSpec(rows, 0, 1e-4, 0.2, hyper)], epochs=30)
    before = train(found, architecture(loss), data(), [NetworkSpec(rows, 0, 1e-4, 0.2, hyper)], epochs=0)
    values = [found(one.scores(data().X)[0], data().y, 0.2).mean() for one in (before, trained)]
    assert values[1] < 0.9 * values[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_a_plain_torch_loop(weighted):
    """AMSGrad, initial weights, order of batches, weight decay and the last small batch, all as in torch."""
    rows, seed, decay = np.arange(10, 310), 7, 1e-2
    content = data()
    if weighted:
        content = replace(content, weight=torch.rand(400) + 0.5)
    trained = train(get("ce"), architecture("ce"), content, [NetworkSpec(rows, seed, decay)], epochs=3, batch_size=128)

    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True, weight_decay=decay)
    generator = generator_of(seed, "order of rows")
    for _ in range(3):
        order = torch.from_numpy(rows)[torch.randperm(300, generator=generator)]
        for batch in order.split(128):
            adam.zero_grad()
            losses = nn.functional.cross_entropy(model(content.X[batch]), content.y[batch], reduction="none")
            (losses * content.weight[batch] if weighted else losses).mean().backward()
            adam.step()
    ours = trained.module(0)
    for name, part in model.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], part, atol=1e-6)
    assert torch.allclose(trained.scores(content.X)[0], model(content.X), atol=1e-5)


def test_networks_that_diverge_are_marked_and_hold_no_nan():
    networks = [NetworkSpec(np.arange(400), 0, decay) for decay in (1e-4, 1e30)]
    trained = train(get("ce"), architecture("ce"), data(), networks, epochs=3)
    assert trained.failed.tolist() == [False, True]
    assert trained.vectors.isfinite().all()
    alone = train(get("ce"), architecture("ce"), data(), networks[:1], epochs=3)
    assert torch.equal(alone.vectors[0], trained.vectors[0])


def test_a_batch_larger_than_the_data():
    networks = [NetworkSpec(np.arange(50), 0)]
    small = train(get("ce"), architecture("ce"), data(), networks, epochs=2, batch_size=1000)
    exact = train(get("ce"), architecture("ce"), data(), networks, epochs=2, batch_size=50)
    assert torch.equal(small.vectors, exact.vectors)


@pytest.mark.parametrize("wrong", [{"rows": np.ones(4, bool)}, {"rows": np.arange(2), "validation": np.array([0.5])}])
def test_a_mask_is_not_taken_for_row_numbers(wrong):
    with pytest.raises(TypeError, match="rows must be row numbers, got an array of"):
        NetworkSpec(**wrong)


def test_progress_counts_every_network_and_epoch():
    counts, lock = [], threading.Lock()

    def count(steps):
        with lock:
            counts.append(steps)

    train(get("ce"), architecture("ce"), data(), grid(), epochs=3, stack_size=4, n_workers=2, progress=count)
    assert sum(counts) == 24 * 3


@pytest.mark.parametrize("n_workers", [1, 2])
def test_an_interrupt_ends_all_workers(n_workers):
    before = threading.active_count()

    def interrupt(steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            get("ce"),
            architecture("ce"),
            data(),
            grid(),
            epochs=10**6,
            stack_size=4,
            n_workers=n_workers,
            progress=interrupt,
        )
    assert threading.active_count() == before


def test_the_number_of_threads_is_restored():
    torch.set_num_threads(2)
    try:
        train(get("ce"), architecture("ce"), data(), grid(), epochs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_order_of_rows_does_not_repeat_the_numbers_of_the_weights():
    generators = torch.Generator().manual_seed(7), generator_of(7, "order of rows")
    assert not torch.equal(*(torch.rand(5, generator=one) for one in generators))


def test_jobs_train_together_as_they_do_alone():
    losses = ("ce", "apc+log", "ova+hin")
    jobs = [Job(get(loss), architecture(loss), data(), grid(loss=loss)) for loss in losses]
    for job, together in zip(jobs, train_all(jobs, epochs=3), strict=True):
        alone = train(job.loss, job.architecture, job.data, job.networks, epochs=3)
        assert torch.equal(alone.vectors, together.vectors)


def test_the_plan_puts_every_network_in_one_chunk():
    networks = grid(trials=10)
    for stack_size in (1, 2, 5, 16, 64, 1000):
        for n_workers in (1, 2, 4):
            chunks = plan_chunks(networks, stack_size=stack_size, n_workers=n_workers)
            assert sorted(position for chunk in chunks for position in chunk.members) == list(range(len(networks)))
            for chunk in chunks:
                assert len(chunk.members) <= stack_size
                size = len(chunk.members) // chunk.n_groups
                for start in range(0, len(chunk.members), size):
                    keys = {(networks[m].seed, networks[m].rows.tobytes()) for m in chunk.members[start : start + size]}
                    assert len(keys) == 1


def test_splits_of_different_sizes_train_together():
    networks = [NetworkSpec(np.arange(100), 0), NetworkSpec(np.arange(250), 0), NetworkSpec(np.arange(100), 1)]
    together = train(get("ce"), architecture("ce"), data(), networks, epochs=3)
    for position, one in enumerate(networks):
        alone = train(get("ce"), architecture("ce"), data(), [one], epochs=3)
        assert torch.equal(alone.vectors[0], together.vectors[position])


def tanh_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))


def relu_net(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, n_outputs))


def noisy_net(n_features, n_outputs):
    return nn.Sequential(
        nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, n_outputs)
    )


@pytest.mark.parametrize("factory", [tanh_net, noisy_net])
def test_modules_do_not_depend_on_their_company_either(factory):
    shape = ModuleArchitecture(factory, 5, 4)
    together = train(get("ce"), shape, data(), grid(), epochs=3)
    for position in (0, 7):
        alone = train(get("ce"), shape, data(), grid()[position : position + 1], epochs=3)
        assert torch.allclose(alone.vectors[0], together.vectors[position], atol=1e-5)
    module = together.module(3)
    assert torch.allclose(module(data().X), together.scores(data().X)[3], atol=1e-6)
    assert not module.training


def normalised_net(n_features, n_outputs):
    return nn.Sequential(nn.BatchNorm1d(n_features), nn.Linear(n_features, n_outputs))


@pytest.mark.parametrize("n", [130, 129, 128])
def test_batch_normalisation_sees_true_rows_only(n):
    content = data()
    content.X[0] += 1000.0
    trained = train(
        get("ce"), ModuleArchitecture(normalised_net, 5, 4), content, [NetworkSpec(np.arange(n), 0)], epochs=60
    )
    mean = trained.module(0)[0].running_mean
    assert torch.allclose(mean, content.X[:n].mean(0), rtol=0.6)


def frozen_net(n_features, n_outputs):
    net = nn.Sequential(nn.Linear(n_features, 8), nn.ReLU(), nn.Linear(8, n_outputs))
    net[0].requires_grad_(False)
    return net


def test_frozen_parameters_stay():
    shape = ModuleArchitecture(frozen_net, 5, 4)
    trained = train(get("ce"), shape, data(), grid()[:2], epochs=3)
    module, start = trained.module(1), shape.build(grid()[1].seed)
    assert torch.equal(module[0].weight, start[0].weight)
    assert not torch.equal(module[2].weight, start[2].weight)


def test_a_module_equals_the_perceptron_of_the_same_shape():
    ours = train(get("ce"), architecture("ce"), data(), grid(), epochs=3)
    theirs = train(get("ce"), ModuleArchitecture(relu_net, 5, 4), data(), grid(), epochs=3)
    assert torch.allclose(ours.vectors, theirs.vectors, atol=1e-5)


def test_a_module_with_the_wrong_outputs_is_refused():
    with pytest.raises(ValueError, match=r"but four rows gave \(4, 3\)"):
        ModuleArchitecture(lambda d, k: nn.Linear(d, 3), 5, 4)
    with pytest.raises(ValueError, match="but four rows gave tuple"):
        ModuleArchitecture(nn.LSTM, 5, 4)
