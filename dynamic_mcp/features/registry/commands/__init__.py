"""The commands for registries."""
