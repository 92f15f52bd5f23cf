"""Definitions of servers, pinned as they were first seen: what has changed since, and what follows."""
