"""Bytes to samples to log-mel frames."""
