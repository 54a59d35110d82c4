"""For a GPU machine without a network: `pack` makes what travels there, `driver` does the work."""
