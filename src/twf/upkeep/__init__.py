"""What is wrong with a set-up, and what is left over in the folder."""
