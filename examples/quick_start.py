"""The quick start: wrap a classifier, set the cost of declining, list the declined rows."""

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split

from demur import RejectOption
from demur.metrics import accepted_accuracy, coverage, zero_one_c_risk

COST = 0.1  # declining costs a tenth of a mistake

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)

model = RejectOption(ExtraTreesClassifier(random_state=0), cost=COST).fit(X_train, y_train)
answers = model.predict(X_test)  # a digit, or -1 where the model declines
print(f"answers {coverage(answers):.1%} of the images, {accepted_accuracy(y_test, answers):.1%} of those correctly")
print(f"average cost of an image: {zero_one_c_risk(y_test, answers, cost=COST):.4f}")

decision = model.decide(X_test, cost=0.01)  # declining has become cheaper: no retraining
print(f"at a cost of 0.01 it declines {decision.reject.mean():.1%}")
print(f"the most likely class of the first declined image is {decision.label[decision.reject][0]}")
