"""A reproduction of Transfer without Forgetting (ECCV 2022)."""

__version__ = "0.1.0"
