"""The memory that rehearsal methods replay from."""
