"""What `cli` does: scanning a program, with the agreement of a person."""
