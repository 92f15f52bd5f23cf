"""Ranks tools for a query: exact names first, then by words and, where known, by semantic similarity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import accumulate
from statistics import fmean, pstdev

from dynamic_mcp.search.index import DEFAULT_TUNING, EXACT, MIN_FUZZY_LENGTH, GroupIndex, Tuning
from dynamic_mcp.search.synonyms import actions, synonyms
from dynamic_mcp.search.words import STOP_WORDS, name_key, split_words, stem

MAX_RESULTS = 8
# Only the start and the end of a longer query are used: users put the point first or last.
MAX_END = 2000
MAX_TERMS = 40
# A tool that has no word of the query itself matches if its synonyms cover this share of the query, or as much as
# this share of a word that no tool has: a single synonym among many words is chance.
FITS_FROM_SHARE, FITS_FROM_RARE = 0.3, 0.55
# The ways in which a query can name a tool, in ascending order of certainty.
NAME_IN_TEXT, NAME_KEY, EXACT_NAME = 1, 2, 3
# The share of the semantic similarity in the score; the rest is by words.
SEMANTIC_WEIGHT = 0.5
# Where no word matches, the best similarity must exceed the mean by the first number of standard deviations; then
# all tools that exceed it by the second number match.
OUTLIER_DEVIATIONS, FIT_DEVIATIONS = 3.0, 2.0

# The semantic similarity of the query to each tool of an index; None where it is unknown.
Similarities = Sequence[float | None]


@dataclass(frozen=True)
class ToolMatch:
    """A tool that matches; `is_named` if the query is its name."""

    group: str
    name: str
    is_named: bool


@dataclass(frozen=True)
class WordMatch:
    """What one word of a query found in a tool: a `term` of its index, and what that adds to the score.

    `likeness` is 1 for the word itself or another form of it, and less for a synonym or a similar spelling.
    """

    word: str
    term: str
    likeness: float
    is_synonym: bool
    score: float


@dataclass(frozen=True)
class ExplainedMatch:
    """A tool that matches, and what its rank follows from.

    `score` orders the matches that are `named` alike: the score by words, or that together with the `similarity` of
    meanings, where it is known. `named` is how the query names the tool: 0 for not at all, or `NAME_IN_TEXT` and up.
    """

    match: ToolMatch
    score: float
    by_words: float
    similarity: float | None
    named: int
    words: tuple[WordMatch, ...]


def rank(
    indexes: Sequence[GroupIndex],
    query: str,
    *,
    limit: int = MAX_RESULTS,
    similarity: Sequence[Similarities] = (),
    tuning: Tuning = DEFAULT_TUNING,
) -> list[ToolMatch]:
    """Return the best matches, best first; none if nothing matches. `similarity` has one entry for each index."""
    order = _Order(indexes, query, similarity, tuning)
    return [order.match(number) for number in order.best(limit)]


def explain(
    indexes: Sequence[GroupIndex],
    query: str,
    *,
    limit: int = MAX_RESULTS,
    similarity: Sequence[Similarities] = (),
    tuning: Tuning = DEFAULT_TUNING,
) -> list[ExplainedMatch]:
    """Return the matches of `rank`, in the same order, each with what its rank follows from."""
    order = _Order(indexes, query, similarity, tuning)
    return [order.explain(number) for number in order.best(limit)]


class _Order:
    """The tools that match a query, and what orders them."""

    def __init__(
        self, indexes: Sequence[GroupIndex], query: str, similarity: Sequence[Similarities], tuning: Tuning
    ) -> None:
        text = query if len(query) <= 2 * MAX_END else f"{query[:MAX_END]} {query[-MAX_END:]}"
        self._scores = _Scores(indexes, tuning)
        self._scores.add(_split_query(text, tuning))
        self._by_words = self._scores.fitting_scores()
        self._similarity = [value for values in similarity for value in values]
        fused = _fuse(self._by_words, self._similarity) if similarity else self._by_words
        self._named = _find_named(indexes, text)
        self._order = {**fused, **{number: fused.get(number, 0.0) for number in self._named}}

    def best(self, limit: int) -> list[int]:
        named, order = self._named, self._order
        return nsmallest(limit, order, key=lambda number: (-named.get(number, 0), -order[number], number))

    def match(self, number: int) -> ToolMatch:
        return self._scores.match(number, is_named=self._named.get(number, 0) > NAME_IN_TEXT)

    def explain(self, number: int) -> ExplainedMatch:
        return ExplainedMatch(
            self.match(number),
            self._order[number],
            self._by_words.get(number, 0.0),
            self._similarity[number] if number < len(self._similarity) else None,
            self._named.get(number, 0),
            tuple(self._scores.explain(number)) if number in self._by_words else (),
        )


class _Scores:
    """The scores of tools by the words of a query. Tools are numbered consecutively across all indexes."""

    def __init__(self, indexes: Sequence[GroupIndex], tuning: Tuning) -> None:
        self._indexes = indexes
        self._tuning = tuning
        self._offsets = list(accumulate(map(len, indexes), initial=0))
        self._count = self._offsets[-1]
        self._scores: dict[int, float] = {}
        self._coverage: dict[int, float] = {}
        self._has_exact_term = False
        self._specific: dict[int, float] = {}
        self._frequencies: dict[str, int] = {}
        self._total = 0.0
        self._terms: Sequence[tuple[str, list[str]]] = ()

    def match(self, number: int, *, is_named: bool) -> ToolMatch:
        index, number_there = self._locate(number)
        return ToolMatch(index.group, index.names[number_there], is_named)

    def explain(self, number: int) -> Iterator[WordMatch]:
        """Yield what each word of the query adds to the score of a tool, without those that add nothing."""
        index, number_there = self._locate(number)
        covered = (self._coverage[number] / self._total) ** self._tuning.coverage
        for stemmed, words in self._terms:
            found = [
                (self._idf(self._frequency(term)) * likeness * weight, likeness, term)
                for term, likeness in self._alternatives(stemmed, words)
                if (weight := index.weight(term, number_there))
            ]
            exact = sum(
                self._idf(self._frequency(EXACT + word))
                * self._tuning.exact
                * index.weight(EXACT + word, number_there)
                for word in words
            )
            if found:
                score, likeness, term = max(found)
                is_synonym = likeness < 1 and not term.startswith(EXACT)
                yield WordMatch(" ".join(words), term, likeness, is_synonym, (score + exact) * covered)

    def _locate(self, number: int) -> tuple[GroupIndex, int]:
        at = max(at for at, offset in enumerate(self._offsets[:-1]) if offset <= number and len(self._indexes[at]))
        return self._indexes[at], number - self._offsets[at]

    def add(self, terms: Sequence[tuple[str, list[str]]]) -> None:
        """Add the terms of a query: stems, each with the words that have it."""
        rare = sorted(terms, key=lambda term: self._frequency(term[0]))[:MAX_TERMS]
        self._terms = rare
        objects = {stemmed for stemmed, _ in rare} - actions()
        for stemmed, words in rare:
            self._add(stemmed, words, is_specific=not objects or stemmed in objects)

    def fitting_scores(self) -> dict[int, float]:
        """Return the scores, or none if no tool matches. A tool that covers more of the query scores higher."""
        enough = min(FITS_FROM_SHARE * self._total, FITS_FROM_RARE * self._idf(0))
        if not self._has_exact_term and not any(score >= enough for score in self._specific.values()):
            return {}
        exponent = self._tuning.coverage
        return {
            number: score * (self._coverage[number] / self._total) ** exponent
            for number, score in self._scores.items()
        }

    def _add(self, stem: str, words: list[str], *, is_specific: bool) -> None:
        """Score each tool by its best term for this stem: the stem, a synonym, or a word with a similar spelling."""
        best: dict[int, float] = {}
        strength: dict[int, float] = {}
        for term, weight in self._alternatives(stem, words):
            weighted_idf = self._idf(self._frequency(term)) * weight
            for number, term_weight in self._postings(term):
                value = weighted_idf * term_weight
                if value > best.get(number, 0.0):
                    best[number] = value
                if weight > strength.get(number, 0.0):
                    strength[number] = weight
        idf = self._idf(self._frequency(stem))
        self._total += idf
        if is_specific:
            self._has_exact_term |= any(weight == 1.0 for weight in strength.values())
            for number, weight in strength.items():
                self._specific[number] = self._specific.get(number, 0.0) + idf * weight
        for number, value in best.items():
            self._scores[number] = self._scores.get(number, 0.0) + value
            self._coverage[number] = self._coverage.get(number, 0.0) + idf * strength[number]
        for word in words:
            weighted_idf = self._idf(self._frequency(EXACT + word)) * self._tuning.exact
            for number, term_weight in self._postings(EXACT + word):
                self._scores[number] = self._scores.get(number, 0.0) + weighted_idf * term_weight

    def _alternatives(self, stem: str, words: list[str]) -> Iterator[tuple[str, float]]:
        yield stem, 1.0
        if self._tuning.synonym:
            for other in synonyms(stem):
                yield other, self._tuning.synonym
        if self._tuning.near and not self._frequency(stem):
            near: dict[str, float] = {}
            for word in words:
                if len(word) >= MIN_FUZZY_LENGTH:
                    for index in self._indexes:
                        near.update(index.similar_words(word))
            for other, likeness in near.items():
                yield EXACT + other, self._tuning.near * likeness

    def _postings(self, term: str) -> Iterator[tuple[int, float]]:
        for index, offset in zip(self._indexes, self._offsets, strict=False):
            for number, term_weight in index.postings(term):
                yield offset + number, term_weight

    def _frequency(self, term: str) -> int:
        frequency = self._frequencies.get(term)
        if frequency is None:
            frequency = self._frequencies[term] = sum(index.document_frequency(term) for index in self._indexes)
        return frequency

    def _idf(self, frequency: int) -> float:
        return math.log(1 + (self._count - frequency + 0.5) / (frequency + 0.5))


def _split_query(text: str, tuning: Tuning) -> list[tuple[str, list[str]]]:
    """Return the stems of a query, each with its words, without stop words unless all are stop words."""
    unique = list(dict.fromkeys(split_words(text)))
    content = [word for word in unique if word not in STOP_WORDS] if tuning.has_stop_words else unique
    by_stem: dict[str, list[str]] = {}
    for word in content or unique:
        by_stem.setdefault(stem(word) if tuning.has_stems else EXACT + word, []).append(word)
    return list(by_stem.items())


def _find_named(indexes: Sequence[GroupIndex], text: str) -> dict[int, int]:
    """Return the tools that the query names, and how: by the whole query (with or without group) or by one word."""
    whole = text.strip()
    keys = {name_key(word) for word in whole.split() if _is_compound(word)}
    named: dict[int, int] = {}
    offset = 0
    for index in indexes:
        matches = [(NAME_IN_TEXT, number) for key in keys for number in index.numbers_by_key(key)]
        matches += [(NAME_KEY, number) for number in index.numbers_by_key(name_key(whole))]
        exact = index.tool_number(whole)
        matches += [] if exact is None else [(EXACT_NAME, exact)]
        named |= {offset + number: certainty for certainty, number in matches}
        offset += len(index)
    return named


def _is_compound(word: str) -> bool:
    """Return whether a word is written like a name: `create_issue`, `createIssue`."""
    return len(split_words(word)) > 1


def _fuse(scores: dict[int, float], similarity: Sequence[float | None]) -> dict[int, float]:
    """Combine the scores by words and the similarities, each relative to its best; unknown ones do not count."""
    similarities = [value for value in similarity if value is not None]
    if not similarities:
        return scores
    mean, top = fmean(similarities), max(similarities)
    if top <= mean:
        return scores
    if not scores:
        spread = pstdev(similarities, mean)
        threshold = mean + FIT_DEVIATIONS * spread if top >= mean + OUTLIER_DEVIATIONS * spread else math.inf
        return {
            number: value - mean
            for number, value in enumerate(similarity)
            if value is not None and value >= threshold
        }
    best = max(scores.values())
    fused: dict[int, float] = {}
    for number, value in enumerate(similarity):
        by_words = scores.get(number, 0.0) / best
        by_similarity = by_words if value is None else max(0.0, (value - mean) / (top - mean))
        fused[number] = (1 - SEMANTIC_WEIGHT) * by_words + SEMANTIC_WEIGHT * by_similarity
    return {number: score for number, score in fused.items() if score > 0}
