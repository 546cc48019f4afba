"""Trained torch modules as classifiers: probabilities, reject option, model folders, export, tables."""

from types import SimpleNamespace

import numpy as np
import onnx
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import demur
from demur import DeferOption, RejectOption, RiskControl, TorchClassifier
from demur.deploy import ModelFileError, Monitor, Reference
from demur.deploy.onnx import compare_onnx, onnx_model
from demur.errors import InputError, InputTypeError
from demur.estimators.torch_classifier import OnnxNetwork
from demur.losses import NoInverseLinkError, get
from demur.tabular import TableModel

CLASSES = np.array(["dog", "cat", "newt"])  # not sorted


class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.linear = torch.nn.Conv2d(2, 4, 3), torch.nn.Linear(4, 3)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.linear(self.dropout(torch.relu(self.convolution(x)).mean((2, 3))))


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.recurrent = torch.nn.Embedding(50, 8), torch.nn.GRU(8, 8, batch_first=True)
        self.linear = torch.nn.Linear(8, 3)

    def forward(self, x):
        return SimpleNamespace(logits=self.linear(self.recurrent(self.embedding(x))[0][:, -1]))


def rows_of(kind, n=60):
    rng = np.random.default_rng(0)
    if kind == "images":
        return rng.normal(size=(n, 2, 5, 6))
    return rng.integers(50, size=(n, 7)) if kind == "tokens" else 3 * rng.normal(size=(n, 4))


def classifier(kind):
    torch.manual_seed(0)
    module = {"images": Convolution, "tokens": Tokens, "table": lambda: torch.nn.Linear(4, 3)}[kind]()
    return TorchClassifier(module, CLASSES, dtype="int64" if kind == "tokens" else "float32", batch_size=16)


def option(kind, **named):
    rows = rows_of(kind)
    return RejectOption(classifier(kind), cost=0.4, **named).fit(rows, CLASSES[np.arange(len(rows)) % 3]), rows


def test_probabilities_are_in_the_order_of_the_sorted_classes():
    model, rows = classifier("table"), rows_of("table")
    scores = model.module(torch.tensor(rows, dtype=torch.float32)).double()
    expected = torch.softmax(scores, 1)[:, [1, 0, 2]].detach().numpy()
    assert np.allclose(model.predict_proba(rows), expected, atol=1e-12)
    assert model.classes_.tolist() == ["cat", "dog", "newt"]
    assert (model.predict(rows) == CLASSES[scores.argmax(1)]).all()
    assert model.n_features_in_ == 4


def test_the_loss_makes_scores_probabilities():
    rows = rows_of("table")
    module = torch.nn.Linear(4, 3)
    scores = module(torch.tensor(rows, dtype=torch.float32))
    link = get("ova+log").proba(scores.double()).detach().numpy()[:, [1, 0, 2]]
    found = TorchClassifier(module, CLASSES, loss="ova+log").predict_proba(rows)
    assert np.allclose(found, link / link.sum(1, keepdims=True))
    with pytest.raises(NoInverseLinkError):
        TorchClassifier(torch.nn.Linear(4, 2), CLASSES, loss="bep").predict_proba(rows)


def test_one_score_is_the_log_odds_of_the_second_class():
    module = torch.nn.Linear(4, 1)
    rows = rows_of("table")
    odds = torch.sigmoid(module(torch.tensor(rows, dtype=torch.float32))).detach().numpy()[:, 0]
    assert np.allclose(TorchClassifier(module, [False, True]).predict_proba(rows)[:, 1], odds, atol=1e-6)


class InADictionary(torch.nn.Linear):
    def forward(self, x):
        return {"features": x, "logits": super().forward(x)}


def test_scores_in_a_dictionary_are_its_logits(tmp_path):
    torch.manual_seed(0)
    plain, rows = classifier("table"), rows_of("table")
    torch.manual_seed(0)
    model = TorchClassifier(InADictionary(4, 3), CLASSES)
    assert np.allclose(model.predict_proba(rows), plain.predict_proba(rows))
    demur.save(model, tmp_path / "model")
    assert np.allclose(demur.load(tmp_path / "model").predict_proba(rows), plain.predict_proba(rows), atol=1e-6)


def test_a_data_frame_has_the_columns_in_the_order_that_the_network_has_seen(tmp_path):
    frame = pd.DataFrame(rows_of("table"), columns=list("abcd"))
    model = RejectOption(classifier("table"), cost=0.4).fit(frame, CLASSES[np.arange(len(frame)) % 3])
    demur.save(model, tmp_path / "model")
    for one in (model, demur.load(tmp_path / "model")):
        assert np.allclose(one.predict_proba(frame.to_numpy()), model.predict_proba(frame), atol=1e-6)
        assert np.allclose(one.predict_proba(pl.DataFrame(frame)), model.predict_proba(frame), atol=1e-6)
        with pytest.raises(ValueError, match="must be in the same order"):
            one.predict_proba(frame[list("dcba")])
        with pytest.raises(ValueError, match="unseen at fit time"):
            one.predict_proba(frame.rename(columns={"a": "e"}))


def test_a_pipeline_with_a_network_is_saved(tmp_path):
    rows = rows_of("table")
    labels = CLASSES[np.arange(len(rows)) % 3]
    pipeline = make_pipeline(StandardScaler(), classifier("table")).fit(rows, labels)
    model = RejectOption(pipeline, cost=0.4).fit(rows, labels)
    demur.save(model, tmp_path / "model")
    assert np.allclose(demur.load(tmp_path / "model").predict_proba(rows), model.predict_proba(rows), atol=1e-6)


def test_what_the_network_cannot_compute_is_uniform_and_declined():
    model, rows = option("table", novelty=None)
    broken = rows[:2].copy()
    broken[0, 1] = np.nan
    assert np.allclose(model.estimator.predict_proba(broken)[0], 1 / 3)
    assert model.decide(broken).reject[0]
    assert model.predict_proba(rows[:0]).shape == (0, 3)


@pytest.mark.parametrize("kind", ["images", "tokens", "table"])
def test_a_saved_and_an_exported_network_decide_the_same(kind, tmp_path):
    model, rows = option(kind)
    assert isinstance(model.estimator_, FrozenEstimator)
    demur.save(model, tmp_path / "model")
    again = demur.load(tmp_path / "model")
    assert isinstance(again.estimator_.estimator, OnnxNetwork)
    assert isinstance(model.estimator, TorchClassifier)  # the model itself has not changed
    assert np.allclose(again.predict_proba(rows), model.predict_proba(rows), atol=1e-6)
    assert (again.predict(rows) == model.predict(rows)).all()
    with pytest.raises(InputError, match="rows must have the shape"):
        again.predict_proba(rows[:, :1])
    demur.save(again, tmp_path / "again")
    for one in (model, demur.load(tmp_path / "again")):
        agreement = compare_onnx(one, onnx_model(one), rows)
        assert agreement.decisions_agree
        assert agreement.proba <= 1e-6


def test_other_estimators_take_it_too():
    model, rows = classifier("table"), rows_of("table")
    y = model.predict(rows)
    model.fit(rows, y)
    assert np.allclose(clone(model).predict_proba(rows), model.predict_proba(rows))
    answers = np.where(np.arange(len(y)) % 5 == 0, "cat", y)[:, None]
    deferring = DeferOption(model, {"nurse": 0.05}).fit(rows, y, answers=answers)
    assert deferring.decide(rows).label.shape == y.shape
    images = rows_of("images", 300)
    guaranteed = RejectOption(classifier("images"), rule=RiskControl(0.9))
    assert "0.9" in guaranteed.fit(images, classifier("images").predict(images)).explain()


def test_a_network_for_a_table_is_wrapped_saved_exported_and_monitored(tmp_path):
    model = classifier("table")
    frame = pd.DataFrame(rows_of("table"), columns=list("abcd"))
    with pytest.raises(ModelFileError, match="has seen no rows"):
        demur.save(model, tmp_path / "unseen")
    wrapped = TableModel.wrap(model, frame, cost=0.4)
    demur.save(wrapped, tmp_path / "model")
    again = demur.load(tmp_path / "model")
    assert np.allclose(again.predict_proba(frame), model.predict_proba(frame), atol=1e-6)
    assert compare_onnx(again, onnx_model(again), frame).decisions_agree
    decision = again.decide(frame)
    looks = decision.reject, decision.confidence, decision.label
    assert not Monitor(Reference.of(*looks, decision.reject, classes=again.classes), max_risk=0.5).watch(*looks)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
def test_rows_are_cast_to_the_type_of_the_module(kind):
    model, rows = classifier("table"), rows_of("table")
    in_single_precision = model.predict_proba(rows)
    model.module.to(kind)
    assert np.allclose(model.predict_proba(rows), in_single_precision, atol=5e-3)


class Branching(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * (5.0 if x.abs().sum() == 0 else 1.0)


def test_a_module_that_no_graph_can_hold_is_refused_in_words(tmp_path):
    torch.manual_seed(0)
    rows = rows_of("table")
    model = TorchClassifier(Branching(4, 3), CLASSES)
    model.predict_proba(rows)
    with pytest.raises(ModelFileError, match="without Python conditions"):
        demur.save(model, tmp_path / "model")
    model = TorchClassifier(torch.nn.Linear(4, 3).bfloat16(), CLASSES)
    model.predict_proba(rows)  # ONNX Runtime cannot multiply this type
    with pytest.raises(ModelFileError, match=r"cannot be translated to ONNX .*module.float\(\)"):
        demur.save(model, tmp_path / "model")
    fixed = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Unflatten(0, (1, -1)), torch.nn.Flatten(0, 1))
    model = TorchClassifier(fixed, CLASSES)
    model.predict_proba(rows)
    demur.save(model, tmp_path / "model")


def test_a_forged_graph_reads_no_file(tmp_path, monkeypatch):
    model = classifier("table")
    model.predict_proba(rows_of("table"))
    demur.save(model, tmp_path / "model")
    stored = demur.load(tmp_path / "model")
    graph = onnx.load_from_string(stored.content.tobytes())
    weight = next(one for one in graph.graph.initializer if list(one.dims) == [3, 4])
    monkeypatch.chdir(tmp_path)
    np.zeros(12, dtype=np.float32).tofile("secret")
    for location in ("secret", str(tmp_path / "secret"), "../secret"):
        weight.ClearField("raw_data")
        weight.data_location = onnx.TensorProto.EXTERNAL
        del weight.external_data[:]
        weight.external_data.add(key="location", value=location)
        forged = OnnxNetwork(np.frombuffer(graph.SerializeToString(), dtype=np.uint8), CLASSES)
        with pytest.raises(Exception, match=r"(?i)external|model_path"):
            forged.predict_proba(rows_of("table"))


@pytest.mark.parametrize(
    ("arguments", "named", "error", "words"),
    [
        ((np.tanh, CLASSES), {}, InputTypeError, "must be a torch.nn.Module, got ufunc"),
        ((torch.nn.Linear(4, 3), ["a", "b", "a"]), {}, InputError, "different ones"),
        ((torch.nn.Linear(4, 3), 3), {}, InputError, "two or more different ones, got 3"),
        ((torch.nn.Linear(4, 3), CLASSES), {"batch_size": 0}, InputError, "batch_size must be a whole number"),
        ((torch.nn.Linear(4, 3), ["a", "b"]), {}, InputError, "2 classes need 2 scores"),
        ((torch.nn.Linear(4, 3), CLASSES), {"dtype": "int8"}, InputError, "dtype must be one of"),
        ((torch.nn.Flatten(0), CLASSES), {}, InputError, "scores of shape"),
    ],
)
def test_bad_arguments(arguments, named, error, words):
    with pytest.raises(error, match=words):
        TorchClassifier(*arguments, **named).predict_proba(rows_of("table"))


def test_rows_that_are_no_numbers_are_refused():
    with pytest.raises(InputError, match="an array of numbers"):
        classifier("table").predict_proba([["a", "b", "c", "d"]])
