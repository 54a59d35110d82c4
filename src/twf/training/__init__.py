"""Pretraining, and the continual-learning loop."""
