"""What else could rank tools: SQLite's full text search, bm25s and rapidfuzz, on the same texts."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from dynamic_mcp.search import STOP_WORDS
from dynamic_mcp.search.words import split_words, stem
from tests.benchmarks.corpora import Corpus

Pair = tuple[str, str]
Rank = Callable[[str], Sequence[Pair]]
LIMIT = 8


def engines() -> dict[str, Callable[[Corpus], Rank]]:
    """Return those that are installed."""
    found: dict[str, Callable[[Corpus], Rank]] = {
        "SQLite FTS5, porter": lambda corpus: fts5(corpus, "porter unicode61 remove_diacritics 2"),
        "SQLite FTS5, trigram": lambda corpus: fts5(corpus, "trigram"),
    }
    if find_spec("bm25s"):
        found["bm25s, Snowball stems, stop words"] = bm25s
    if find_spec("rapidfuzz"):
        found["rapidfuzz, token set ratio"] = rapidfuzz
    return found


def texts(corpus: Corpus) -> list[tuple[str, str, str]]:
    """Return the name, the description and the parameters of each tool."""
    rows = []
    for tool in corpus.tools:
        properties = tool["inputSchema"].get("properties", {})
        told = [f"{name} {about.get('description', '')}" for name, about in properties.items()]
        rows.append((" ".join(split_words(tool["name"])), tool["description"], " ".join(told)))
    return rows


def fts5(corpus: Corpus, tokenizer: str) -> Rank:
    """Rank by FTS5's bm25 with weights for the three columns; the query without stop words, any word may match."""
    base = sqlite3.connect(":memory:")
    base.execute(f"create virtual table t using fts5(name, about, parameters, tokenize='{tokenizer}')")
    base.executemany("insert into t values (?, ?, ?)", texts(corpus))
    pairs = _pairs(corpus)

    def rank(query: str) -> Sequence[Pair]:
        said = [word for word in dict.fromkeys(split_words(query)) if word not in STOP_WORDS]
        if tokenizer == "trigram":
            said = list(dict.fromkeys(word[at : at + 3] for word in said for at in range(len(word) - 2)))
        if not said:
            return []
        match = " OR ".join(f'"{word}"' for word in said)
        found = base.execute(
            "select rowid from t where t match ? order by bm25(t, 3, 1, 0.7), rowid limit ?", (match, LIMIT)
        )
        return [pairs[row - 1] for (row,) in found]

    return rank


def bm25s(corpus: Corpus) -> Rank:
    """Rank by bm25s on stems."""
    import bm25s as engine

    def stems(text: str) -> list[str]:
        return [stem(word) for word in split_words(text) if word not in STOP_WORDS]

    index: Any = engine.BM25()  # Any: has no types
    index.index([stems(" ".join(row)) for row in texts(corpus)], show_progress=False)
    pairs = _pairs(corpus)

    def rank(query: str) -> Sequence[Pair]:
        said = stems(query)
        if not said:
            return []
        found, scores = index.retrieve([said], k=LIMIT, show_progress=False)
        return [pairs[at] for at, score in zip(found[0], scores[0], strict=True) if score > 0]

    return rank


def rapidfuzz(corpus: Corpus) -> Rank:
    """Rank by rapidfuzz's token set ratio."""
    from rapidfuzz import fuzz, process

    documents = [" ".join(row).lower() for row in texts(corpus)]
    pairs = _pairs(corpus)

    def rank(query: str) -> Sequence[Pair]:
        said = " ".join(word for word in re.findall(r"\w+", query.lower()) if word not in STOP_WORDS)
        found = process.extract(said, documents, scorer=fuzz.token_set_ratio, limit=LIMIT)
        return [pairs[at] for _, _, at in found]

    return rank


def _pairs(corpus: Corpus) -> list[Pair]:
    return [(tool["group"], tool["name"]) for tool in corpus.tools]
