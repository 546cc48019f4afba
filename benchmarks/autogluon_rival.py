"""Fit AutoGluon on one table and write its probabilities, run by the Python of AutoGluon's own environment.

``python autogluon_rival.py FOLDER SECONDS PRESET``: FOLDER has train.parquet and test.parquet; the target is the last
column of the first. It writes proba.parquet, with a column for each class.
"""

import sys
from pathlib import Path

import pandas as pd
from autogluon.tabular import TabularPredictor


def main():
    folder, seconds, preset = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    train, test = (pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    kind = "binary" if train.iloc[:, -1].nunique() == 2 else "multiclass"
    target = train.columns[-1]

    def fitted(name, **more):
        predictor = TabularPredictor(
            target, problem_type=kind, eval_metric="log_loss", path=str(folder / name), verbosity=1
        )
        return predictor.fit(train, time_limit=seconds, presets=preset, num_cpus=2, **more)

    try:
        predictor = fitted("model")
    except (AssertionError, RuntimeError):  # the trial that decides about stacking found no time for any model
        predictor = fitted("again", dynamic_stacking=False)
    predictor.predict_proba(test, as_multiclass=True).to_parquet(folder / "proba.parquet")


if __name__ == "__main__":
    main()
