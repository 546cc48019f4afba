"""Text columns of "auto": the candidate "text", the dense view, missing and odd texts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from demur import AutoClassifier, RejectOption
from demur.errors import InputError, MissingExtraError
from demur.estimators import text_features
from demur.estimators.base import joined
from demur.estimators.text_features import DenseText, Ngrams

from .text_rows import text_rows

ROWS = text_rows()
ODD = ["", None, "   ", "😀", "x" * 30_000, "please open the door"]


@pytest.fixture(scope="module")
def blend():
    return AutoClassifier(("text", "lr"), cv=3, random_state=0).fit(ROWS[["text", "size"]], ROWS["y"])


def test_text_is_learned_beside_other_columns(blend):
    new = text_rows(seed=1)
    assert blend.score(new[["text", "size"]], new["y"]) == 1
    assert blend.encoding_.n_other == 1
    assert [one.name for one in blend.tried_] == ["linear model of text", "logistic regression"]


def test_ngrams_of_the_texts_that_they_are_learned_from_are_those_of_transform():
    texts = np.array([text or "" for text in ODD], dtype=object)
    learned = (ngrams := Ngrams()).fit_transform(texts)
    np.testing.assert_allclose(learned.toarray(), ngrams.transform(texts).toarray(), atol=1e-6)


def test_unusual_texts_get_finite_probabilities(blend):
    proba = blend.predict_proba(pd.DataFrame({"text": ODD, "size": 0.0}))
    assert np.isfinite(proba).all()
    assert blend.classes_[proba[-1].argmax()] == "open"
    np.testing.assert_allclose(proba[0], proba[1])  # a missing text is an empty one


def test_probabilities_do_not_depend_on_the_other_rows(blend):
    rows = ROWS[["text", "size"]]
    np.testing.assert_allclose(blend.predict_proba(rows)[7:8], blend.predict_proba(rows.iloc[7:8]), atol=1e-6)


def test_the_same_call_gives_the_same_model(blend):
    again = AutoClassifier(("text", "lr"), cv=3, random_state=0).fit(ROWS[["text", "size"]], ROWS["y"])
    np.testing.assert_array_equal(again.held_out_proba_, blend.held_out_proba_)


def test_the_columns_of_an_array_can_be_text(blend):
    array = ROWS[["size", "text"]].to_numpy(object)
    model = AutoClassifier(("text", "lr"), text_features=[1], cv=3, random_state=0).fit(array, ROWS["y"])
    frame = ROWS[["text", "size"]]
    np.testing.assert_allclose(model.predict_proba(array), blend.predict_proba(frame), atol=1e-6)
    with pytest.raises(InputError, match="text_features must be a mask or numbers of the 2 columns"):
        AutoClassifier(text_features=[2]).fit(array, ROWS["y"])


def test_of_many_texts_as_many_are_learned_from_as_there_is_time_for(monkeypatch):
    monkeypatch.setattr("demur.estimators.candidates._FEW_ROWS", 2500)
    rows = text_rows(n_each=1100)
    model = AutoClassifier(("text",), time_budget=0.01, random_state=0).fit(rows[["text"]], rows["y"])
    (tried,) = model.tried_
    assert "76% of the rows" in tried.outcome  # the 2,000 of 2,640 that show how long all of them would take
    assert "linear model of text 76%" in model.starved


def test_a_table_with_text_has_its_own_candidates():
    with pytest.raises(InputError, match="the candidate 'text' needs a column of text"):
        AutoClassifier(("text",)).fit(ROWS[["size"]], ROWS["y"])
    found = AutoClassifier(cv=2, time_budget=0.01, random_state=0).fit(ROWS[["text"]], ROWS["y"])
    assert [one.name for one in found.tried_] == ["linear model of text", "logistic regression", "networks"]


def test_without_the_extra_only_the_svd_is_used(monkeypatch):
    texts = ROWS["text"].to_numpy(object)
    monkeypatch.setattr(text_features, "is_installed", lambda name: False)
    text_features._wordllama.cache_clear()
    dense = DenseText.learn(texts)
    points = dense.transform(texts)
    assert dense.embeddings is None
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 10, atol=1e-4)
    with pytest.raises(MissingExtraError, match=r"pip install demur\[text\]"):
        DenseText(dense.ngrams, dense.axes, "wordllama").transform(texts)


def test_embeddings_bring_related_words_together():
    pytest.importorskip("wordllama")
    texts = np.array(["open the door", "close the gate", "play some music"] * 4, dtype=object)
    with_extra = DenseText.learn(texts)
    without = replace(with_extra, embeddings=None)
    assert with_extra.transform(texts).shape[1] == without.transform(texts).shape[1] + 256
    door, gate, music = with_extra.transform(texts)[:3, -256:]
    assert door @ gate > door @ music


def test_empty_texts_alone_can_be_learned():
    texts = np.array([""] * 5, dtype=object)
    assert np.isfinite(DenseText.learn(texts).transform(texts)).all()
    assert Ngrams().fit_transform(texts).nnz == 0


def test_long_texts_are_told_apart_by_all_their_words():
    padding = "word " * 1_000
    ngrams = Ngrams()
    ngrams.fit_transform(np.array([padding + "alpha", padding + "beta"], dtype=object))
    words, characters = ngrams.parts_
    assert {"alpha", "beta"} <= set(words.get_feature_names_out())
    assert not any("alp" in term for term in characters.get_feature_names_out())  # read at the beginning alone


def test_classes_that_a_fold_lacks_are_no_error():
    rows = pd.concat([ROWS, pd.DataFrame({"text": ["a single row of its own class here"], "y": ["rare"]})])
    model = RejectOption(AutoClassifier(("text",), cv=3)).fit(rows[["text"]], rows["y"])
    assert model.predict(ROWS[["text"]].head(3)).tolist() == ROWS["y"].head(3).tolist()


def test_short_texts_of_a_data_frame_are_text_where_they_are_named():
    rows = pd.DataFrame({"word": [f"{a}{b}s" for a in "abcdefgh" for b in ("ov", "ini")], "n": 1.0})
    y = ["slavic", "italian"] * 8
    model = AutoClassifier(("text",), text_features=["word"], cv=2, random_state=0).fit(rows, y)
    assert model.encoding_.schema.text.tolist() == [True, False]
    assert model.predict(pd.DataFrame({"word": ["zov", "zini"], "n": 1.0})).tolist() == ["slavic", "italian"]


def test_a_long_text_leaves_room_for_the_other_columns():
    assert joined(np.array([["long " * 9_000, "short"]], dtype=object))[0].endswith(" short")
