"""The config file: its form, its resolved values, and all messages about its problems."""
