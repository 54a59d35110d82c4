"""Weights & Biases, as a view of runs. The Parquet record is the truth; this may fail."""
