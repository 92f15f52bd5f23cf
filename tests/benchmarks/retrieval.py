"""Measure how well tools are found: recall at 1, 5 and 8, mean reciprocal rank, and milliseconds a query.

    python -m tests.benchmarks.retrieval --metatool metatool.json [--bfcl FOLDER] [--fastmcp PYTHON]
        [--embeddings http://127.0.0.1:8000/v1] [--ablation]

MetaTool comes from a file, BFCL from the installed package `bfcl-eval` or its folder `data`. `--fastmcp` is Python
in an environment with FastMCP, whose BM25 search is measured on the same queries. Each set is split by a hash of the
query: choices were made on the develop part, the report part is only reported. It judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import mul
from pathlib import Path

from msgspec import Raw

from dynamic_mcp.config.resolved import Embeddings
from dynamic_mcp.embeddings.endpoint import EmbeddingEndpoint, Vector
from dynamic_mcp.search import DEFAULT_TUNING, FieldWeight, GroupIndex, Tuning, rank, summarize
from tests.benchmarks.corpora import Corpus, Query, bfcl, metatool
from tests.benchmarks.engines import Pair, Rank, engines

BATCH = 32
HEAD = f"{'':44} {'recall@1':>9} {'@5':>6} {'@8':>6} {'MRR':>6} {'ms':>7}"
ALL_ALIKE = FieldWeight(1, 15)
NOT_AT_ALL = FieldWeight(0, 15)
VARIANTS: dict[str, Tuning] = {
    "as it is": DEFAULT_TUNING,
    "with stop words in the query": replace(DEFAULT_TUNING, has_stop_words=False),
    "words alone, no stems": replace(DEFAULT_TUNING, has_stems=False),
    "stems alone, no words": replace(DEFAULT_TUNING, exact=0.0),
    "no synonyms": replace(DEFAULT_TUNING, synonym=0.0),
    "synonyms as good as the word": replace(DEFAULT_TUNING, synonym=1.0),
    "nothing for likeness in spelling": replace(DEFAULT_TUNING, near=0.0),
    "nothing for coverage": replace(DEFAULT_TUNING, coverage=0.0),
    "all of coverage": replace(DEFAULT_TUNING, coverage=1.0),
    "no length normalization": replace(DEFAULT_TUNING, length_share=0.0),
    "all of length normalization": replace(DEFAULT_TUNING, length_share=1.0),
    "names as light as descriptions": replace(DEFAULT_TUNING, name=replace(DEFAULT_TUNING.name, weight=1)),
    "names and descriptions only": replace(
        DEFAULT_TUNING, parameters=NOT_AT_ALL, parameter_descriptions=NOT_AT_ALL, values=NOT_AT_ALL
    ),
    "no fields: all text alike": Tuning(ALL_ALIKE, ALL_ALIKE, ALL_ALIKE, ALL_ALIKE, ALL_ALIKE, ALL_ALIKE),
}


@dataclass(frozen=True)
class Figures:
    """What a way to rank reaches."""

    recall: tuple[float, float, float]
    mrr: float
    ms: float

    def row(self, name: str) -> str:
        """Return a line of the table."""
        recall = f"{self.recall[0]:9.3f} {self.recall[1]:6.3f} {self.recall[2]:6.3f}"
        return f"{name:44} {recall} {self.mrr:6.3f} {self.ms:7.2f}"


def measure(queries: Sequence[Query], ranked: Rank) -> Figures:
    """Rank for all queries."""
    began = time.perf_counter()
    found = [ranked(query.text) for query in queries]
    return judged(queries, found, (time.perf_counter() - began) * 1e3 / len(queries))


def judged(queries: Sequence[Query], found: Sequence[Sequence[Pair]], ms: float) -> Figures:
    """Score answers against the labels."""

    def recall(k: int) -> float:
        shares = (
            len(query.relevant & set(each[:k])) / len(query.relevant)
            for query, each in zip(queries, found, strict=True)
        )
        return sum(shares) / len(queries)

    ranks = (
        next((1 / at for at, pair in enumerate(each, start=1) if pair in query.relevant), 0.0)
        for query, each in zip(queries, found, strict=True)
    )
    return Figures((recall(1), recall(5), recall(8)), sum(ranks) / len(queries), ms)


def parts(corpus: Corpus, tuning: Tuning = DEFAULT_TUNING) -> list[GroupIndex]:
    """Return the searchable form of a corpus."""
    groups: dict[str, dict[str, Raw]] = {}
    for tool in corpus.tools:
        groups.setdefault(tool["group"], {})[tool["name"]] = Raw(json.dumps(tool).encode())
    return [GroupIndex(group, tools, tuning=tuning) for group, tools in groups.items()]


def by_words(corpus: Corpus, tuning: Tuning = DEFAULT_TUNING) -> Rank:
    """Rank as the program does without embeddings."""
    made = parts(corpus, tuning)
    return lambda query: [(match.group, match.name) for match in rank(made, query, tuning=tuning)]


async def by_meaning(corpus: Corpus, endpoint: EmbeddingEndpoint) -> Callable[[bool], Rank]:
    """Rank as the program does with embeddings, or (False) by embeddings alone."""
    made = parts(corpus)
    described = {
        (tool["group"], tool["name"]): summarize(tool["name"], Raw(json.dumps(tool).encode()))
        for tool in corpus.tools
    }
    pairs = [(part.group, name) for part in made for name in part.names]
    tools = dict(zip(pairs, await embedded(endpoint, [described[pair] for pair in pairs]), strict=True))
    texts = [query.text[:1000] for query in corpus.queries]
    queries = dict(zip(texts, await embedded(endpoint, texts), strict=True))

    def ranker(fused: bool) -> Rank:
        def ranked(query: str) -> Sequence[Pair]:
            asked = queries[query[:1000]]
            similarity = [[sum(map(mul, asked, tools[part.group, name])) for name in part.names] for part in made]
            if fused:
                return [(match.group, match.name) for match in rank(made, query, similarity=similarity)]
            scores = dict(zip(pairs, (value for each in similarity for value in each), strict=True))
            return sorted(scores, key=lambda pair: -scores[pair])[:8]

        return ranked

    return ranker


async def embedded(endpoint: EmbeddingEndpoint, texts: Sequence[str]) -> list[Vector]:
    """Return the vectors of many texts."""
    found: list[Vector] = []
    for at in range(0, len(texts), BATCH):
        found += await endpoint.embed(texts[at : at + BATCH], 120.0)
    return found


def by_fastmcp(python: str, corpus: Corpus, queries: Sequence[Query]) -> Figures:
    """Rank with FastMCP, in its own environment."""
    script = Path(__file__).with_name("fastmcp_search.py")
    asked = json.dumps({"tools": corpus.tools, "queries": [query.text for query in queries]})
    done = subprocess.run([python, str(script)], input=asked, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    groups = {tool["name"]: tool["group"] for tool in corpus.tools}
    return judged(queries, [[(groups[name], name) for name in each] for each in answer["found"]], answer["ms"])


async def compare(corpus: Corpus, fastmcp: str | None, endpoint: EmbeddingEndpoint | None) -> None:
    """Print the table of one corpus, for both parts."""
    print(f"\n{corpus.name}: {len(corpus.tools)} tools")
    words = by_words(corpus)
    semantic_index = await by_meaning(corpus, endpoint) if endpoint else None
    for reported in (False, True):
        queries = corpus.part(reported=reported)
        print(f"\n{'report' if reported else 'develop'} part, {len(queries)} queries\n{HEAD}")
        if fastmcp:
            print(by_fastmcp(fastmcp, corpus, queries).row("FastMCP, BM25 search"))
        print(measure(queries, words).row("dynamic-mcp"))
        if semantic_index:
            print(measure(queries, semantic_index(True)).row("dynamic-mcp with embeddings"))
            print(measure(queries, semantic_index(False)).row("embeddings alone"))


def ablate(corpus: Corpus) -> None:
    """Print what each choice is worth, and what other engines reach, on the develop part."""
    queries = corpus.part(reported=False)
    print(f"\n{corpus.name}: what each choice is worth, develop part\n{HEAD}")
    for name, tuning in VARIANTS.items():
        print(measure(queries, by_words(corpus, tuning)).row(name), flush=True)
    for name, engine in engines().items():
        print(measure(queries, engine(corpus)).row(name), flush=True)


async def main() -> None:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--metatool", type=Path)
    options.add_argument("--bfcl", type=Path)
    options.add_argument("--fastmcp")
    options.add_argument("--embeddings")
    options.add_argument("--model", default="embeddings")
    options.add_argument("--ablation", action="store_true")
    chosen = options.parse_args()
    corpora = [*([metatool(chosen.metatool)] if chosen.metatool else []), bfcl(chosen.bfcl)]
    endpoint = EmbeddingEndpoint(Embeddings(chosen.embeddings, chosen.model, None)) if chosen.embeddings else None
    for corpus in corpora:
        await compare(corpus, chosen.fastmcp, endpoint)
        if chosen.ablation:
            ablate(corpus)
    if endpoint:
        await endpoint.close()


if __name__ == "__main__":
    asyncio.run(main())
