"""One module per command: its options and what it does, and what commands share. ``transom.cli`` only dispatches."""
