"""Semantic search through the user's own embeddings endpoint. It sends nothing unless the config names one."""

from dynamic_mcp.embeddings.index import SemanticIndex

__all__ = ["SemanticIndex"]
