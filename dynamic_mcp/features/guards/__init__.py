"""What the arguments of calls may be."""
