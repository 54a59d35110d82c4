"""Measurements and runs on a GPU machine that has no network: packed here, driven there.

`pack` makes a folder that travels with the checkout, and prints the commands; `driver` is what
they call.
"""
