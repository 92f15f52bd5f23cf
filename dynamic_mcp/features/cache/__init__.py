"""Results that are kept for a while, so that the same call is not made again."""
