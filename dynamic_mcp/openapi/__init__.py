"""OpenAPI documents, and the tools that their operations are."""
