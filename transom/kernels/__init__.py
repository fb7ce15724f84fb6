"""Attention over paged keys and values. Knows tensors only: no model, no stream, no socket."""
