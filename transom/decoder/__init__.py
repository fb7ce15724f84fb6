"""The text decoder: one token every 80 ms."""
