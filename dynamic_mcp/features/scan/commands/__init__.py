"""The command `cli`: scans a program, after the user has agreed."""
