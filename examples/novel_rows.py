"""Rows of a class that is not in the training data: novelty detection declines them, probabilities alone do not."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from demur import RejectOption

X, y = load_digits(return_X_y=True)
X = X / 16
known = y != 9
model = RejectOption(LogisticRegression(max_iter=2000), cost=0.2, novelty=0.05)
model.fit(X[known][::2], y[known][::2])

for name, rows in {"other digits": X[known][1::2], "nines": X[~known]}.items():
    for rate in (None, 0.05):
        decision = model.set_params(novelty=rate).decide(rows)
        novel, ambiguous = (decision.reason == "novel").mean(), (decision.reason == "ambiguous").mean()
        answered = 1 - decision.reject.mean()
        print(f"{name}, novelty={rate}: {answered:.1%} answered, {ambiguous:.1%} ambiguous, {novel:.1%} novel")
