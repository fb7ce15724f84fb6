"""One module per command: its options and what it does. ``transom.cli`` only dispatches."""
