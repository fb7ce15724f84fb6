"""Unit tests, one file or more a module."""
