"""Search by meaning, through an embeddings endpoint of the user's. Off, and silent, until the config names one."""

from dynamic_mcp.embeddings.index import SemanticIndex

__all__ = ["SemanticIndex"]
