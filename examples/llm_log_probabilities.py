"""Calibrate the log-probabilities of an LLM that labels tickets, and decline its unreliable answers."""

import csv

import numpy as np

from demur.tabular import evaluate_table, fit_proba, read_table

LABELS = np.array(["billing", "other", "refund", "technical"])
COST = 0.2  # a review costs a fifth of a wrong label


def ask_the_llm(n_tickets, seed):
    """Simulate an LLM that lists its three best labels and is overconfident."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(LABELS), size=n_tickets)
    scores = rng.normal(size=(n_tickets, len(LABELS)))
    scores[np.arange(n_tickets), truth] += 2.0
    logits = 6 * scores  # overconfident: 2 would be calibrated
    log_proba = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)) - 0.01  # other tokens have the rest
    listed = log_proba >= np.sort(log_proba, axis=1)[:, [1]]
    return log_proba, listed, LABELS[truth]


def write(path, n_tickets, seed):
    log_proba, listed, truth = ask_the_llm(n_tickets, seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ticket", *LABELS, "label"])
        for k in range(n_tickets):
            said = [f"{log_proba[k, c]:.4f}" if listed[k, c] else "" for c in range(len(LABELS))]
            writer.writerow([f"T{k}", *said, truth[k]])


write("said.csv", 1000, seed=0)
write("later.csv", 4000, seed=1)

fitted = fit_proba("said.csv", "label", cost=COST, holdout=0)
print(*(f"Note: {note}" for note in fitted.notes), sep="\n")
print(f"temperature {fitted.model.facts['temperature']:.2f}")
as_said = fit_proba("said.csv", "label", cost=COST, holdout=0, calibration=None)
for name, model in (("as the LLM says", as_said.model), ("calibrated", fitted.model)):
    judged = evaluate_table(model, read_table("later.csv"))
    print(
        f"{name}: answers {judged.coverage:.1%}, {judged.accepted_accuracy:.1%} of them correctly; "
        f"{100 * judged.risk:.1f} per 100 tickets, and {100 * judged.risk_if_all_answered:.1f} if it answered all"
    )
