"""Semantic search through the user's embeddings endpoint. Sends nothing unless the config names one."""

from dynamic_mcp.embeddings.index import SemanticIndex

__all__ = ["SemanticIndex"]
