"""One translator per dialect between wire events and the engine's events."""
