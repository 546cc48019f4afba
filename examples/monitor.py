"""Monitor decisions over four months: the alarm comes in the fourth month, when the images become noisy."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split

from demur import RejectOption
from demur.deploy import Monitor, Reference

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0, stratify=y)
X_known, X_new, y_known, y_new = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)
model = RejectOption(ExtraTreesClassifier(random_state=0), cost=0.1).fit(X_train, y_train)

decision = model.decide(X_known)
wrong = model.classes_[decision.label] != y_known
known = Reference.of(decision.reject, decision.confidence, decision.label, wrong, classes=model.classes_)
monitor = Monitor(known, max_risk=0.05)

rng = np.random.default_rng(0)
for month, noise in enumerate((0, 0, 0, 4), start=1):
    rows = rng.choice(len(X_new), size=len(X_new), replace=False)
    seen = model.decide(
        np.clip(X_new[rows] + rng.normal(scale=noise, size=X_new.shape), 0, 16) if noise else X_new[rows]
    )
    alarms = monitor.watch(seen.reject, seen.confidence, seen.label)
    audited = monitor.draw(f"month {month}", 0, len(rows)) | seen.reject
    alarms += monitor.review(seen.reject[audited], (model.classes_[seen.label] != y_new[rows])[audited])
    print(f"month {month}: declined {seen.reject.mean():.1%}", *alarms, sep="\n  ")
