"""Finds the tools that match a query, across all groups. Pure: no network, no files, no clock."""

from dynamic_mcp.search.index import (
    DEFAULT_TUNING,
    MAX_GROUP_DESCRIPTION,
    FieldWeight,
    FoundWord,
    GroupIndex,
    Tuning,
    find_words,
    summarize,
)
from dynamic_mcp.search.ranking import MAX_END, MAX_RESULTS, ExplainedMatch, ToolMatch, WordMatch, explain, rank
from dynamic_mcp.search.words import STOP_WORDS

__all__ = [
    "DEFAULT_TUNING",
    "MAX_END",
    "MAX_GROUP_DESCRIPTION",
    "MAX_RESULTS",
    "STOP_WORDS",
    "ExplainedMatch",
    "FieldWeight",
    "FoundWord",
    "GroupIndex",
    "ToolMatch",
    "Tuning",
    "WordMatch",
    "explain",
    "find_words",
    "rank",
    "summarize",
]
