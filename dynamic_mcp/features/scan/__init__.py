"""Scanning: makes a pack for review of what a program says of itself. Nothing here runs when a config is served."""
