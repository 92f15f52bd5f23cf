"""The inverted index of one group's catalog: immutable, and independent of other groups."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.search.words import name_key, split_name, split_words, stem, trigrams

MAX_WORDS = 1000
# The maximum number of indexed words of a group, each counted for every tool that has it. For the tools
# after that, only the names are indexed: a server may have any number of words.
MAX_POSTINGS = 500_000
# The maximum number of words, with the same three letters, that are compared with a misspelt one.
MAX_ALIKE = 2000
# So much of the description of a group counts for each of its tools.
MAX_GROUP_DESCRIPTION = 500
EXACT = "="  # prefix of a word itself, which distinguishes it from a stem
# Shorter words have no similar words; longer ones are similar from this likeness.
MIN_FUZZY_LENGTH = 4
MIN_LIKENESS = 0.55
MIN_LIKENESS_OTHER_START = 0.65  # with a different first letter, which typos rarely change
_MAX_TEXT = 2000
_MAX_NODES = 500
_MAX_SUMMARY = 1000
_INNER = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")


@dataclass(frozen=True)
class FieldWeight:
    """The weight of a word in this field, and the usual number of words in it."""

    weight: float
    length: float


@dataclass(frozen=True)
class Tuning:
    """The parameters of the ranking; `docs/search.md` shows the effect of each."""

    name: FieldWeight = FieldWeight(3, 3)
    title: FieldWeight = FieldWeight(2, 3)
    description: FieldWeight = FieldWeight(1, 15)
    parameters: FieldWeight = FieldWeight(1, 6)
    parameter_descriptions: FieldWeight = FieldWeight(0.5, 40)
    values: FieldWeight = FieldWeight(0.5, 8)
    group: FieldWeight = FieldWeight(1, 2)
    group_description: FieldWeight = FieldWeight(0.5, 10)
    saturation: float = 1.2
    length_share: float = 0.4
    has_stop_words: bool = True
    has_stems: bool = True
    exact: float = 0.4
    synonym: float = 0.5
    near: float = 0.8
    coverage: float = 0.4


DEFAULT_TUNING = Tuning()


class GroupIndex:
    """The numbered tools of a group: their names, and for each term its postings (tool and weight)."""

    def __init__(
        self, group: str, tools: Mapping[str, Raw], description: str = "", *, tuning: Tuning = DEFAULT_TUNING
    ) -> None:
        self.group = group
        self.names = tuple(tools)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._by_key = _index_keys(name_key(group), self.names)
        self._starts = array("I", [0])
        self._tools = array("I")
        self._weights = array("f")
        about = [
            (tuning.group, split_words(group)),
            (tuning.group_description, split_words(description[:MAX_GROUP_DESCRIPTION])),
        ]
        postings: dict[str, list[tuple[int, float]]] = {}
        count = 0
        for number, (name, tool) in enumerate(tools.items()):
            texts = _extract_texts(name, tool) if count < MAX_POSTINGS else _ToolTexts(name)
            terms = _weigh_terms(texts, about, tuning)
            count += len(terms)
            for term, weight in terms.items():
                postings.setdefault(term, []).append((number, weight))
        self._terms = {term: at for at, term in enumerate(postings)}
        for entries in postings.values():
            self._tools.extend(number for number, _ in entries)
            self._weights.extend(weight for _, weight in entries)
            self._starts.append(len(self._tools))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_large(self) -> bool:
        """Return whether a search may be slow."""
        return len(self._tools) > MAX_POSTINGS // 10

    def tool_number(self, name: str) -> int | None:
        return self._numbers.get(name)

    def numbers_by_key(self, key: str) -> Iterable[int]:
        """Return the tools with this `name_key`, with or without the name of the group in front."""
        return self._by_key.get(key, ())

    def postings(self, term: str) -> Iterable[tuple[int, float]]:
        """Return the tools that contain a term, each with the weight of the term (0 to 1)."""
        at = self._terms.get(term)
        if at is None:
            return ()
        start, end = self._starts[at], self._starts[at + 1]
        return zip(self._tools[start:end], self._weights[start:end], strict=True)

    def weight(self, term: str, number: int) -> float:
        """Return the weight of a term in one tool; 0 if the tool does not contain it."""
        return next((weight for each, weight in self.postings(term) if each == number), 0.0)

    def document_frequency(self, term: str) -> int:
        """Return how many tools contain a term."""
        at = self._terms.get(term)
        return 0 if at is None else self._starts[at + 1] - self._starts[at]

    def similar_words(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the words of the tools with a similar spelling, each with its likeness (0 to 1)."""
        grams = trigrams(word)
        shared = Counter(other for gram in grams for other in self._by_gram.get(gram, ()))
        for other, count in shared.items():
            likeness = 2 * count / (len(grams) + len(other))
            if likeness >= (MIN_LIKENESS if other[0] == word[0] else MIN_LIKENESS_OTHER_START):
                yield other, likeness

    @cached_property
    def _by_gram(self) -> dict[str, list[str]]:
        table: dict[str, list[str]] = {}
        for term in self._terms:
            if term.startswith(EXACT) and len(term) > MIN_FUZZY_LENGTH:
                for gram in dict.fromkeys(trigrams(term[1:])):
                    words = table.setdefault(gram, [])
                    if len(words) < MAX_ALIKE:
                        words.append(term[1:])
        return table


def _index_keys(group: str, names: Iterable[str]) -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for number, key in enumerate(map(name_key, names)):
        for each in {key, group + key} if key else ():
            table.setdefault(each, []).append(number)
    return table


def _weigh_terms(
    tool: _ToolTexts, about: Iterable[tuple[FieldWeight, list[str]]], tuning: Tuning
) -> dict[str, float]:
    """Weigh each term of a tool over all fields: BM25F (Zaragoza et al., TREC 2004) without the IDF."""
    fields = [
        (tuning.name, split_words(tool.name)),
        (tuning.title, split_words(tool.title)),
        (tuning.description, split_words(tool.description)),
        (tuning.parameters, _split_all(tool.parameters)),
        (tuning.parameter_descriptions, _split_all(tool.parameter_descriptions)),
        (tuning.values, _split_all(tool.values)),
        *about,
    ]
    sums: dict[str, float] = {}
    for tuned, terms in fields:
        if not tuned.weight:
            continue
        length = 1 - tuning.length_share + tuning.length_share * len(terms) / tuned.length
        for word, count in Counter(terms).items():
            weight = tuned.weight * count / length
            for term in (EXACT + word, stem(word)) if tuning.has_stems else (EXACT + word,):
                sums[term] = sums.get(term, 0.0) + weight
    return {term: weight / (weight + tuning.saturation) for term, weight in sums.items()}


def _split_all(texts: list[str]) -> list[str]:
    words: list[str] = []
    for text in texts:
        words += split_words(text)
        if len(words) > MAX_WORDS:
            break
    return words


@dataclass
class _ToolTexts:
    """The texts of one tool, by field."""

    name: str
    title: str = ""
    description: str = ""
    parameters: list[str] = field(default_factory=list)
    parameter_descriptions: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


def _extract_texts(name: str, tool: Raw) -> _ToolTexts:
    decoded = wire.value(tool)
    members = decoded if isinstance(decoded, dict) else {}
    texts = _ToolTexts(name, _cut(members.get("title")), _cut(members.get("description")))
    annotations = members.get("annotations")
    if not texts.title and isinstance(annotations, dict):
        texts.title = _cut(annotations.get("title"))
    for schema in _walk_schemas(members.get("inputSchema")):
        _add_schema(texts, schema)
    return texts


@dataclass(frozen=True)
class FoundWord:
    """A word of a tool that has a term, and the fields that have it."""

    word: str
    fields: tuple[str, ...]


def find_words(name: str, tool: Raw, about: Mapping[str, str], terms: Iterable[str]) -> dict[str, FoundWord]:
    """Return where a tool has these terms, in words: by the field, the most telling first.

    `about` has more fields, of all tools of its group.
    """
    texts = _extract_texts(name, tool)
    fields = {
        "name": split_words(texts.name),
        "title": split_words(texts.title),
        "description": split_words(texts.description),
        "parameters": _split_all(texts.parameters),
        "descriptions of parameters": _split_all(texts.parameter_descriptions),
        "allowed values": _split_all(texts.values),
        **{field: split_words(text) for field, text in about.items()},
    }
    found: dict[str, FoundWord] = {}
    for term in terms:
        words = {
            field: next((word for word in words if _has_term(word, term)), "") for field, words in fields.items()
        }
        having = [field for field, word in words.items() if word]
        if having:
            found[term] = FoundWord(words[having[0]], tuple(having))
    return found


def _has_term(word: str, term: str) -> bool:
    return EXACT + word == term if term.startswith(EXACT) else stem(word) == term


def summarize(name: str, tool: Raw) -> str:
    """Return a short text about a tool, the input of the semantic index."""
    texts = _extract_texts(name, tool)
    summary = ". ".join(filter(None, [" ".join(split_name(name)), texts.title, texts.description]))
    if texts.parameters:
        summary = f"{summary} ({', '.join(texts.parameters)})"
    return summary[:_MAX_SUMMARY]


def _walk_schemas(root: object) -> Iterator[Mapping[str, object]]:
    """Yield a schema and its subschemas, outermost first, up to `_MAX_NODES`."""
    queue = [root]
    for at in range(_MAX_NODES):
        if at >= len(queue):
            return
        schema = queue[at]
        if isinstance(schema, dict) and len(queue) <= _MAX_NODES:
            queue += _subschemas(schema)
        if isinstance(schema, dict):
            yield schema


def _subschemas(schema: Mapping[str, object]) -> Iterator[object]:
    for key in _INNER:
        inner = schema.get(key)
        if isinstance(inner, dict):
            yield from inner.values()
    for key in _LISTS:
        choices = schema.get(key)
        if isinstance(choices, list):
            yield from choices
    for key in _SINGLE:
        if isinstance(schema.get(key), dict):
            yield schema[key]


def _add_schema(texts: _ToolTexts, schema: Mapping[str, object]) -> None:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        texts.parameters += list(properties)[:_MAX_NODES]
        descriptions = (each.get("description") for each in properties.values() if isinstance(each, dict))
        texts.parameter_descriptions += [_cut(text) for text in descriptions if isinstance(text, str)]
    allowed = schema.get("enum")
    if isinstance(allowed, list):
        texts.values += [value[:_MAX_TEXT] for value in allowed[:_MAX_NODES] if isinstance(value, str)]


def _cut(text: object) -> str:
    return text[:_MAX_TEXT] if isinstance(text, str) else ""
