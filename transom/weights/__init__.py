"""Checkpoints: files, names, configs, the hub and the bundled model."""
