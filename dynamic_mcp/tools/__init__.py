"""Tools as a model meets them: arguments, schemas, results, and our own."""
