"""Rules on the arguments of calls."""
