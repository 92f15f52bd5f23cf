"""Runs the plug-ins of a config. It is imported with the first config that has some."""
