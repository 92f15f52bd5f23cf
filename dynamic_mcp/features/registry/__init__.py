"""Servers from registries: finds them, adds them to the config, and updates them. It starts none."""
