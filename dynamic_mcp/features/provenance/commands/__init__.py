"""Commands of packages."""
