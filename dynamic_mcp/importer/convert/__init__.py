"""Converts foreign servers into entries of our config, and merges them into one config."""
