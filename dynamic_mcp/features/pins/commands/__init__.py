"""The `pins` commands."""
