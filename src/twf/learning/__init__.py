"""All that decides a number: methods, networks, replay, evaluation, and the training loop.

Nothing here opens a file of the project, talks to a tracker or looks for a GPU: what it needs is
handed to it.
"""
