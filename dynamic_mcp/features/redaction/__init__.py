"""Redacts texts of arguments, results and server messages."""
