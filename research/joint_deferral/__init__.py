"""Joint losses for deferral on the paper's data sets; see README.md."""
