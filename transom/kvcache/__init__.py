"""Block memory: which stream owns which block. Knows nothing of models or sockets."""
