"""Metrics and their values. A metric has a bounded number of label sets: beyond it, names become `_other`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

# Replaces names that may not be shown, or that exceed the limit.
OTHER = "_other"
# The most label sets of a metric before names become `_other`. In a histogram, each has about 17 lines.
MAX_SERIES = 2000
MAX_DISTRIBUTIONS = 500

Labels = tuple[str, ...]


class MetricKind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Definition(Struct, frozen=True):
    """A metric: its name, its help text, and the names of its labels.

    `named` are the labels whose values are names chosen by a config or a server; other labels have only a few
    values. A histogram has the upper bounds of its `buckets`.
    """

    name: str
    kind: MetricKind
    description: str
    labels: Labels = ()
    named: frozenset[str] = frozenset()
    buckets: tuple[float, ...] = ()


class Values:
    """The values of a counter or a gauge, by the values of its labels."""

    def __init__(self, definition: Definition, limit: int = MAX_SERIES) -> None:
        self.definition = definition
        self._limit = limit
        self._values: dict[Labels, float] = {}

    @property
    def series(self) -> Mapping[Labels, float]:
        return self._values

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        try:
            self._values[labels] += amount
        except KeyError:
            labels = _bound(labels, self._values, self.definition, self._limit)
            self._values[labels] = self._values.get(labels, 0) + amount

    def set(self, value: float, labels: Labels = ()) -> None:
        self._values[_bound(labels, self._values, self.definition, self._limit)] = value


class Distribution:
    """The number of values in each bucket, the last of which is unbounded, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class Histogram:
    """The distributions of a histogram, by the values of its labels."""

    def __init__(self, definition: Definition, limit: int = MAX_DISTRIBUTIONS) -> None:
        self.definition = definition
        self._limit = limit
        self._buckets = definition.buckets
        self._distributions: dict[Labels, Distribution] = {}

    @property
    def series(self) -> Mapping[Labels, Distribution]:
        return self._distributions

    def observe(self, value: float, labels: Labels = ()) -> None:
        found = self._distributions.get(labels) or self._find(labels)
        found.counts[bisect_left(self._buckets, value)] += 1
        found.total += value

    def _find(self, labels: Labels) -> Distribution:
        labels = _bound(labels, self._distributions, self.definition, self._limit)
        return self._distributions.setdefault(labels, Distribution(len(self._buckets)))


Family = Values | Histogram


def _bound(labels: Labels, series: Mapping[Labels, object], definition: Definition, limit: int) -> Labels:
    """Return labels within the limit: as encodable text, and without names once there are too many."""
    assert len(labels) == len(definition.labels), f"{definition.name} has the labels {definition.labels}"
    labels = tuple(_writable(each) for each in labels)
    if labels in series or len(series) < limit:
        return labels
    named = definition.named
    pairs = zip(definition.labels, labels, strict=True)
    return tuple(OTHER if value and name in named else value for name, value in pairs)


def _writable(text: str) -> str:
    """Return a text that can be encoded as UTF-8: JSON may have lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
