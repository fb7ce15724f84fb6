"""Transom: a self-hosted realtime speech-to-text server."""

__version__ = "0.1.0"
