"""Finds the tools that match a query, across all groups. Pure: no network, no files, no clock."""

from dynamic_mcp.search.index import DEFAULT_TUNING, FieldWeight, GroupIndex, Tuning, summarize
from dynamic_mcp.search.ranking import MAX_END, MAX_RESULTS, ToolMatch, rank
from dynamic_mcp.search.words import STOP_WORDS

__all__ = [
    "DEFAULT_TUNING",
    "MAX_END",
    "MAX_RESULTS",
    "STOP_WORDS",
    "FieldWeight",
    "GroupIndex",
    "ToolMatch",
    "Tuning",
    "rank",
    "summarize",
]
