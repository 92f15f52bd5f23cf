"""The command line: one file for each command, which imports what it needs when it runs."""
