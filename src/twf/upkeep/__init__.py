"""What is wrong with a set-up, and a method of one's own begun as a copy."""
