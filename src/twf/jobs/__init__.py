"""One run, or one pretraining, from its files to its record or checkpoint."""
