"""Tools as the config shows them, and calls of them as servers get them."""
