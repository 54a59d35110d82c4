"""Figures of a study: the tidy frame that each kind draws, and the drawing."""

from twf.results.figures.kinds import INDEX, KINDS, planned, write

__all__ = ["INDEX", "KINDS", "planned", "write"]
