"""Runs the plug-ins of a config. It is loaded with the first config that has some."""
