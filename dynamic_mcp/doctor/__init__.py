"""Checks of a config and of each server behind it. They give findings, which are values; nothing is printed here."""
