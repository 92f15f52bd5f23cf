"""Access rules, compiled: decides from names alone, without knowledge of faces or links."""
