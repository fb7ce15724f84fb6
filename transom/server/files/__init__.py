"""Uploaded files and recordings: from bytes to a transcript, over HTTP and without it."""
