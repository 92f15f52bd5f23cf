"""What commands do with registries."""
