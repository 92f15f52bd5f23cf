"""Convert foreign servers into entries of our config, and merge them into one config."""
