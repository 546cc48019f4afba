"""Mistakes with different costs: a cost matrix for triage, with a column for asking a doctor.

The data are scikit-learn's breast cancer cells. The costs are invented.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import CostMatrix, RejectOption
from demur.metrics import confusion_matrix

data = load_breast_cancer()
y = data.target_names[data.target]
X_train, X_test, y_train, y_test = train_test_split(data.data[:, :10], y, test_size=0.5, random_state=0, stratify=y)

#          answered: benign  malignant  ask a doctor
costs = np.array([[0.0, 3.0, 1.0],  # true class benign: an unnecessary operation
                  [20.0, 0.0, 1.0]])  # true class malignant: missed  # fmt: skip
classes = ["benign", "malignant"]  # the order of the rows above, and of model.classes_


def show(name, model):
    answers = model.fit(X_train, y_train).predict(X_test)
    counts = confusion_matrix(y_test, answers, labels=classes, reject_label=model.reject_label_)
    print(f"{name}: {(counts * costs).sum() / len(y_test):.3f} per patient")
    for truth, row in zip(classes, counts, strict=True):
        print(f"  {truth:9} -> benign {row[0]:3}, malignant {row[1]:3}, asked {row[2]:3}")


logistic = make_pipeline(StandardScaler(), LogisticRegression())
show("one price for all mistakes (c = 0.1)", RejectOption(logistic, cost=0.1))
show("a price for each mistake", RejectOption(logistic, rule=CostMatrix(costs)))
