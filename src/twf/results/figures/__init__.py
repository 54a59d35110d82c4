"""Figures of a study: the tidy frame that each kind draws, and the drawing."""

from twf.results.figures.kinds import KINDS, Drawn, planned, write

__all__ = ["KINDS", "Drawn", "planned", "write"]
