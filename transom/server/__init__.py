"""Sockets and HTTP. Imports no torch."""
