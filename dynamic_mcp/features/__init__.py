"""The features: one room each, with all that belongs to it. No room imports another."""
