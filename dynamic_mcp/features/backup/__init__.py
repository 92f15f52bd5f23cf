"""Copies of what the program keeps in files, and their way back."""
