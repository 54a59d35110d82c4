"""A method of one's own, begun as a copy."""
