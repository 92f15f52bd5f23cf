"""What commands do with pins."""
