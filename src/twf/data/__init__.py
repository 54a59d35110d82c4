"""Data sets: archives and their checks, a reader for each, and the prepared arrays."""
