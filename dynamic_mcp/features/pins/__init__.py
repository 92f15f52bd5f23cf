"""Pins the definitions of servers as first seen, and holds back changed ones."""
