"""Many streams in one batch on one device."""
