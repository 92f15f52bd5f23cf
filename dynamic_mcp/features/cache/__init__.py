"""Caches results for a while, so that equal calls are not repeated."""
