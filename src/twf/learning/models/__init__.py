"""The networks, and the gates of feature propagation."""
