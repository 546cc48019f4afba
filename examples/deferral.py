"""Ask the right expert: a nurse who knows some classes, or a consultant who knows all classes but has little time.

The images are scikit-learn's digits, cut to their left half, so that the model alone is often wrong. The answers of
the nurse and the consultant are simulated.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import Capacity, DeferOption

digits = load_digits()
X, y = digits.images[:, :, :4].reshape(len(digits.target), -1), digits.target
rng = np.random.default_rng(0)
guess = rng.integers(0, 10, len(y))
nurse = np.where((y < 5) | (rng.random(len(y)) < 0.3), y, guess)  # knows the digits below five
consultant = np.where(rng.random(len(y)) < 0.98, y, guess)
answers = np.column_stack([nurse, consultant])
X_train, X_test, y_train, y_test, said_train, said_test = train_test_split(X, y, answers, test_size=0.5, random_state=0)

model = DeferOption(
    make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), experts={"nurse": 0.02, "consultant": 0.2}
)
model.fit(X_train, y_train, answers=said_train)
alone = (model.estimator_.predict(X_test) == y_test).mean()
together = (model.predict(X_test, answers=said_test) == y_test).mean()
print(f"accuracy of the model alone: {alone:.1%}, of the system: {together:.1%}")


def show(name, route):
    shares = ", ".join(f"{who} {np.mean(route == who):.1%}" for who in ("model", "nurse", "consultant"))
    print(f"{name}: {shares}")


show("who answers", model.route(X_test))
show("at a price of 0.5 for the consultant", model.route(X_test, prices={"consultant": 0.5}))
show("with 40 questions for the consultant", model.route(X_test, capacity=Capacity({"consultant": 40})))
