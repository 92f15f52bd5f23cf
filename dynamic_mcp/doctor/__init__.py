"""Checks of a config and of the servers in it. They return findings as values and print nothing."""
