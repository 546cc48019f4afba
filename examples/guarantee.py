"""A guarantee: at most 2 % of the answers are wrong, with 90 % confidence; and the error if there are too few rows."""

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split

from demur import RejectOption, RiskControl
from demur.guarantees import NoGuaranteeError
from demur.metrics import accepted_accuracy, coverage

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)

# with cv=3, a third of the rows is set aside to choose the threshold; the model is trained on the others
model = RejectOption(ExtraTreesClassifier(random_state=0), rule=RiskControl(target_risk=0.02, delta=0.1), cv=3)
answers = model.fit(X_train, y_train).predict(X_test)
print(model.rule_.explain())
wrong = 1 - accepted_accuracy(y_test, answers)
print(f"\nOn {len(y_test)} test images: answers {coverage(answers):.1%}, {wrong:.2%} of those wrongly.\n")

try:
    RejectOption(ExtraTreesClassifier(random_state=0), rule=RiskControl(0.001, delta=0.1)).fit(X_train, y_train)
except NoGuaranteeError as error:
    print(f"A target of 0.1 % is an error: {error}")
