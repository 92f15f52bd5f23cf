"""What a person can see of a running program: its log and its place among the running ones."""
