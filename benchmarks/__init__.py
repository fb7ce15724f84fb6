"""Measurements and what they need; never imported by the package."""
