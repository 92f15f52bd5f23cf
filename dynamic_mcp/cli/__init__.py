"""The command line: one file a command, each with its own imports inside."""
