"""Servers from registries: found, understood, made into entries of the config, and updated. Nothing is started."""
