"""Ranks tools for a query: the exact name first, then by words, and by meaning where that is known."""

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
# Of a longer query the two ends are read: people put what they want first or last.
MAX_END = 2000
MAX_TERMS = 40
# Without a word of the query itself, a tool fits if what it has for it is this share of the query, or so much of it
# as this part of a word that no tool has: one synonym among many words is chance.
FITS_FROM_SHARE, FITS_FROM_RARE = 0.3, 0.55
# How a query may name a tool, the surest last.
NAME_IN_TEXT, NAME_KEY, EXACT_NAME = 1, 2, 3
# How much meaning counts beside words, of 1.
SEMANTIC_WEIGHT = 0.5
# Where no word fits, a meaning must stand out from the others by so many standard deviations; what else is as far
# out as this fits too.
OUTLIER_DEVIATIONS, FIT_DEVIATIONS = 3.0, 2.0

# How like the query each tool of a part is, by meaning; None where that is not known.
Similarities = Sequence[float | None]


@dataclass(frozen=True)
class Match:
    """A tool that fits; `is_named` where the query is its name."""

    group: str
    name: str
    is_named: bool


def rank(
    indexes: Sequence[GroupIndex],
    query: str,
    *,
    limit: int = MAX_RESULTS,
    similarity: Sequence[Similarities] = (),
    tuning: Tuning = DEFAULT_TUNING,
) -> list[Match]:
    """Return the tools that fit best, best first; none where nothing fits. `closeness` is by part."""
    text = query if len(query) <= 2 * MAX_END else f"{query[:MAX_END]} {query[-MAX_END:]}"
    scores = _Scores(indexes, tuning)
    scores.add(_split_query(text, tuning))
    found = scores.fitting_scores()
    if similarity:
        found = _fuse(found, [each for part in similarity for each in part])
    named = _find_named(indexes, text)
    order = {**found, **{number: found.get(number, 0.0) for number in named}}
    best = nsmallest(limit, order, key=lambda number: (-named.get(number, 0), -order[number], number))
    return [scores.match(number, is_named=named.get(number, 0) > NAME_IN_TEXT) for number in best]


class _Scores:
    """What the words of a query say for each tool; the tools of all parts are numbered through."""

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

    def match(self, number: int, *, is_named: bool) -> Match:
        """Return the tool of a number."""
        at = max(at for at, offset in enumerate(self._offsets[:-1]) if offset <= number and len(self._indexes[at]))
        return Match(self._indexes[at].group, self._indexes[at].names[number - self._offsets[at]], is_named)

    def add(self, terms: Sequence[tuple[str, list[str]]]) -> None:
        """Take what a query asks for: stems, each with the words that have it."""
        rare = sorted(terms, key=lambda term: self._frequency(term[0]))[:MAX_TERMS]
        objects = {stemmed for stemmed, _ in rare} - actions()
        for stemmed, spelt in rare:
            self._add(stemmed, spelt, tells=not objects or stemmed in objects)

    def fitting_scores(self) -> dict[int, float]:
        """Return the scores of the tools, if one of them fits: what covers more of the query counts more."""
        enough = min(FITS_FROM_SHARE * self._total, FITS_FROM_RARE * self._rareness(0))
        if not self._has_exact_term and not any(told >= enough for told in self._specific.values()):
            return {}
        share = self._tuning.coverage
        return {
            number: score * (self._coverage[number] / self._total) ** share for number, score in self._scores.items()
        }

    def _add(self, stemmed: str, spelt: list[str], *, tells: bool) -> None:
        """Count the best that each tool has for a term: the stem, else a synonym, else what is spelt like it."""
        best: dict[int, float] = {}
        strength: dict[int, float] = {}
        for term, weight in self._alternatives(stemmed, spelt):
            rareness = self._rareness(self._frequency(term)) * weight
            for number, said in self._postings(term):
                value = rareness * said
                if value > best.get(number, 0.0):
                    best[number] = value
                if weight > strength.get(number, 0.0):
                    strength[number] = weight
        asked = self._rareness(self._frequency(stemmed))
        self._total += asked
        if tells:
            self._has_exact_term |= any(weight == 1.0 for weight in strength.values())
            for number, weight in strength.items():
                self._specific[number] = self._specific.get(number, 0.0) + asked * weight
        for number, value in best.items():
            self._scores[number] = self._scores.get(number, 0.0) + value
            self._coverage[number] = self._coverage.get(number, 0.0) + asked * strength[number]
        for word in spelt:
            rareness = self._rareness(self._frequency(EXACT + word)) * self._tuning.exact
            for number, said in self._postings(EXACT + word):
                self._scores[number] = self._scores.get(number, 0.0) + rareness * said

    def _alternatives(self, stemmed: str, spelt: list[str]) -> Iterator[tuple[str, float]]:
        yield stemmed, 1.0
        if self._tuning.synonym:
            for other in synonyms(stemmed):
                yield other, self._tuning.synonym
        if self._tuning.near and not self._frequency(stemmed):
            near: dict[str, float] = {}
            for word in spelt:
                if len(word) >= MIN_FUZZY_LENGTH:
                    for part in self._indexes:
                        near.update(part.similar_words(word))
            for other, likeness in near.items():
                yield EXACT + other, self._tuning.near * likeness

    def _postings(self, term: str) -> Iterator[tuple[int, float]]:
        for part, offset in zip(self._indexes, self._offsets, strict=False):
            for number, said in part.postings(term):
                yield offset + number, said

    def _frequency(self, term: str) -> int:
        found = self._frequencies.get(term)
        if found is None:
            found = self._frequencies[term] = sum(part.document_frequency(term) for part in self._indexes)
        return found

    def _rareness(self, frequency: int) -> float:
        return math.log(1 + (self._count - frequency + 0.5) / (frequency + 0.5))


def _split_query(text: str, tuning: Tuning) -> list[tuple[str, list[str]]]:
    """Return the stems that a query asks for, each with its words; a query of stop words alone means them."""
    found = list(dict.fromkeys(split_words(text)))
    said = [word for word in found if word not in STOP_WORDS] if tuning.has_stop_words else found
    by_stem: dict[str, list[str]] = {}
    for word in said or found:
        by_stem.setdefault(stem(word) if tuning.has_stems else EXACT + word, []).append(word)
    return list(by_stem.items())


def _find_named(indexes: Sequence[GroupIndex], text: str) -> dict[int, int]:
    """Return the tools that the query names: as a whole, alone or after the group, or as one of its words."""
    whole = text.strip()
    said = {name_key(word) for word in whole.split() if _is_compound(word)}
    found: dict[int, int] = {}
    offset = 0
    for part in indexes:
        ways = [(NAME_IN_TEXT, number) for key in said for number in part.numbers_by_key(key)]
        ways += [(NAME_KEY, number) for number in part.numbers_by_key(name_key(whole))]
        same = part.tool_number(whole)
        ways += [] if same is None else [(EXACT_NAME, same)]
        found |= {offset + number: way for way, number in ways}
        offset += len(part)
    return found


def _is_compound(word: str) -> bool:
    """Tell whether a word is spelt as names are and words of a sentence are not."""
    return len(split_words(word)) > 1


def _fuse(found: dict[int, float], similarity: Sequence[float | None]) -> dict[int, float]:
    """Put words and meaning together, each by its own best; a tool of unknown meaning has its words alone."""
    known = [value for value in similarity if value is not None]
    if not known:
        return found
    mean, top = fmean(known), max(known)
    if top <= mean:
        return found
    if not found:
        spread = pstdev(known, mean)
        from_ = mean + FIT_DEVIATIONS * spread if top >= mean + OUTLIER_DEVIATIONS * spread else math.inf
        return {
            number: value - mean for number, value in enumerate(similarity) if value is not None and value >= from_
        }
    best = max(found.values())
    fused: dict[int, float] = {}
    for number, value in enumerate(similarity):
        by_words = found.get(number, 0.0) / best
        by_meaning = by_words if value is None else max(0.0, (value - mean) / (top - mean))
        fused[number] = (1 - SEMANTIC_WEIGHT) * by_words + SEMANTIC_WEIGHT * by_meaning
    return {number: score for number, score in fused.items() if score > 0}
