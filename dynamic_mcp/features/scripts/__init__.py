"""Runs a short program in a sandbox: many calls in one turn, of which only the result reaches the model."""
