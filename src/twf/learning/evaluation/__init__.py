"""What a network has learned and forgotten."""
