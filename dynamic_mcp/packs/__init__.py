"""Packs: which commands of command line programs there are as tools."""
