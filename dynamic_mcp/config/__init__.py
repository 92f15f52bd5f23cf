"""The config file: its form, what its values turn into, and every message about what is wrong with it."""
