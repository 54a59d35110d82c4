"""The report, the reproducibility statement and the model cards of a study."""
