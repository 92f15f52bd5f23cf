"""Finds the tools that match a query, across all groups. Pure: no network, no files, no clock."""

from dynamic_mcp.search.index import DEFAULT_TUNING, Field, GroupIndex, Tuning, summarize
from dynamic_mcp.search.ranking import MAX_END, MAX_RESULTS, Match, rank
from dynamic_mcp.search.words import STOP_WORDS

__all__ = [
    "DEFAULT_TUNING",
    "MAX_END",
    "MAX_RESULTS",
    "STOP_WORDS",
    "Field",
    "GroupIndex",
    "Match",
    "Tuning",
    "rank",
    "summarize",
]
