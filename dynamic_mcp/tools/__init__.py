"""Tools as a model sees them: their arguments, schemas and results, and our own tools."""
