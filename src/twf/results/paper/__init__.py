"""The paper beside a study: its cells, its claims, and how ours compare."""
