"""Finds the tools that fit a query, among those of all groups. Pure: no network, no files, no clock."""

from dynamic_mcp.search.fields import summary
from dynamic_mcp.search.index import TUNED, Field, GroupIndex, Tuning
from dynamic_mcp.search.ranking import MAX_END, MAX_RESULTS, Match, rank
from dynamic_mcp.search.words import STOP_WORDS

__all__ = [
    "MAX_END",
    "MAX_RESULTS",
    "STOP_WORDS",
    "TUNED",
    "Field",
    "GroupIndex",
    "Match",
    "Tuning",
    "rank",
    "summary",
]
