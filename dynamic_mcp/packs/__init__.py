"""Packs: the commands of command line programs that are tools."""
