"""How long what remains of a study takes, and the memory and disk that it needs."""
