"""Classifies tools by whether they only read, from their definitions. Anything unclear counts as a writer.

One sign of writing outweighs all signs of reading. The definitions come from the server: this sorts the tools of
well-meaning servers, and does not protect from a server that lies. The config's own lists do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.config.access import ToolEffects
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy import verbs
from dynamic_mcp.policy.globs import Globs
from dynamic_mcp.search.words import split_name

AccessClass = Literal["read", "write"]
_Named = Literal["read", "may read", "may write", "write"] | None
Source = Literal["config", "annotations", "classifier"]

_MAX_NAME = 500
_MAX_DESCRIPTION = 2000
_MAX_SAYING = 600
_MAX_CHOICES = 100
_MAX_SHOWN = 50
_LEADING_WORDS = 8

_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*|[,;&]")
_SENTENCE_END = re.compile(r"[.!?:](?:\s|$)|\n\s*\n|\n\s*[-*#]")
_SAYS_READ_ONLY = re.compile(
    r"(?<!not )(?<!non-)\bread[- ]only\b(?! mode)"
    r"|\b(?:does not|doesn't|do not|never|without)\s+(?:\w+\s+){0,2}?(?:chang|modif|alter|mutat|writ)"
    r"|\bno side[- ]effects?\b"
)
# `commit_get`: this last word is always the verb.
_FINAL_VERBS = verbs.words("describe fetch find get lookup")
# `pull_request_read`, `release_list`: these words are nouns, unlike in `share_list` or `set_read`.
_THINGS = verbs.words("branch build commit issue message note pull record release report request review run task")
_FINAL_AFTER_THINGS = frozenset(("list", "read"))
# `list_merge`, `status_set`: these words may be nouns, so that the last one may be the verb.
_READ_NOUNS = verbs.words("count diff help history info list preview query search show status view")
_READ_WORDS = verbs.READ | verbs.MAY_READ
_VERBS = _READ_WORDS | verbs.MAY_WRITE
# `Run a search`: the name has the actual verb.
_RUNS = frozenset(("execute", "perform", "run"))
_CONJUNCTIONS = frozenset(("and", "or", "then", "&", ",", ";"))
# Arguments of tools that run the code they receive.
_PROGRAMS = verbs.words("sql statement script javascript js code command commands cmd shell yaml manifest")
# Arguments that only make sense if the tool changes something.
_CHANGES = verbs.words("force overwrite dry_run dryrun confirm confirmed upsert mutation if_exists")
_CONTENTS = verbs.words("content contents body text message data value values payload")
_SUSPICIOUS: Mapping[str | None, frozenset[str]] = {"read": _CHANGES, None: _CHANGES | _PROGRAMS | _CONTENTS}
_SELECTORS = verbs.words("action actions method operation op command subcommand mode verb")


class Classification(Struct, frozen=True):
    """A class, its source, its confidence (0 to 1), and the evidence for it in short texts."""

    access: AccessClass
    confidence: float
    evidence: tuple[str, ...]
    source: Source = "classifier"


def access_of(name: str, tool: Raw, config: ToolEffects) -> Classification:
    """Classify a tool by the config, else by trusted annotations, else by its definition."""
    if _globs(config.write).matches_variant(name):
        return Classification("write", 1.0, ("`effects.write` matches the name",), "config")
    if _globs(config.read).matches(name):
        return Classification("read", 1.0, ("`effects.read` matches the name",), "config")
    if config.trusts_annotations:
        hints = _hints(wire.member(tool, "annotations"))
        if hints.get("destructiveHint") and "readOnlyHint" in hints:
            return Classification("write", 1.0, ("`destructiveHint` is true",), "annotations")
        if "readOnlyHint" in hints:
            said = "true" if hints["readOnlyHint"] else "false"
            access: AccessClass = "read" if hints["readOnlyHint"] else "write"
            return Classification(access, 1.0, (f"`readOnlyHint` is {said}",), "annotations")
    return classify(name, tool)


def classify(name: str, tool: Raw) -> Classification:
    """Classify a tool by its name, description, arguments, and annotations that deny that it only reads."""
    traits = _Traits.of(name, tool)
    named, by_name = _read_name(traits.parts)
    against = tuple(traits.signs_of_writing(named))
    if named == "write":
        return Classification("write", 0.9, (by_name, *against))
    if against:
        return Classification("write", 0.7, against)
    if named == "may write" and not traits.reads_by_choices:
        return Classification("write", 0.6, (by_name,))
    return _confirm_reading(named, by_name, tuple(traits.signs_of_reading()))


def _confirm_reading(named: _Named, by_name: str, signs: tuple[str, ...]) -> Classification:
    """Classify a tool without signs of writing."""
    match named:
        case "read":
            return Classification("read", 0.95 if signs else 0.85, (by_name, *signs))
        case "may read":
            return Classification("read", 0.7, (by_name, *signs))
    if not signs:
        return Classification("write", 0.5, ("nothing says that it only reads",))
    return Classification("read", 0.6 if len(signs) == 1 else 0.7, signs)


class _Traits(Struct, frozen=True):
    """The traits of a tool: the parts of its name, verbs of its description, its arguments and their choices."""

    parts: tuple[str, ...]
    lead: str | None
    added: tuple[str, ...]
    others: tuple[str, ...]
    text: str
    properties: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    hints: Mapping[str, bool]

    @staticmethod
    def of(name: str, tool: Raw) -> _Traits:
        members = _members(tool)
        text = (wire.text(members.get("description")) or "")[:_MAX_DESCRIPTION].casefold()
        lead, added, others = _read_sentence(_SENTENCE_END.split(text.strip(), maxsplit=1)[0])
        arguments = _members(wire.member(members.get("inputSchema", wire.EMPTY_OBJECT), "properties"))
        return _Traits(
            _parts(name),
            lead,
            added,
            others,
            text,
            tuple("_".join(_parts(each)) for each in islice(arguments, _MAX_CHOICES)),
            {each: _choices(raw) for each, raw in arguments.items() if each.casefold() in _SELECTORS},
            _hints(members.get("annotations", wire.NULL)),
        )

    def signs_of_writing(self, named: _Named) -> Iterator[str]:
        if self.hints.get("readOnlyHint") is False:
            yield "`readOnlyHint` is false"
        elif self.hints.get("destructiveHint"):
            yield "`destructiveHint` is true"
        if self.lead is not None and self.lead not in _READ_WORDS and not (named == "read" and self.lead in _RUNS):
            yield f"the description begins with `{self.lead}`"
        said = self.added if named == "read" else self.others
        yield from (f"the description says `{verb}`" for verb in said if verb != self.lead)
        suspicious = _SUSPICIOUS.get(named, _CHANGES | _PROGRAMS)
        yield from (f"the argument `{each}`" for each in self.properties if each in suspicious)
        for each, choices in self.choices.items():
            writer = next((choice for choice in choices if _read_name(_parts(choice))[0] == "write"), None)
            if writer is not None:
                yield f"`{each}` can be `{writer[:_MAX_SHOWN]}`"

    @property
    def reads_by_choices(self) -> bool:
        """Return whether an argument selects the operation, and all its choices are to read."""
        return any(choices and all(map(_is_reader, choices)) for choices in self.choices.values())

    def signs_of_reading(self) -> Iterator[str]:
        if self.lead in _READ_WORDS:
            yield f"the description begins with `{self.lead}`"
        if _SAYS_READ_ONLY.search(self.text, 0, _MAX_SAYING):
            yield "the description says that it only reads"
        if self.reads_by_choices:
            yield "everything that its arguments can select only reads"


def _read_name(parts: tuple[str, ...]) -> tuple[_Named, str]:
    """Return the class that a name suggests, and the evidence."""
    writer = next((part for part in parts if part in verbs.WRITE), None) or _find_joined_noun(parts)
    if writer is not None:
        return "write", f"`{writer}` in the name"
    head = next((part for part in parts if part in _VERBS), None)
    if head is None or (head in _READ_NOUNS and parts[-1] in verbs.MAY_WRITE):
        return None, ""
    if head not in verbs.MAY_WRITE:
        return ("read" if head in verbs.READ else "may read"), f"`{head}` in the name"
    last = parts[-1]
    if last in _FINAL_VERBS or (last in _FINAL_AFTER_THINGS and head in _THINGS):
        return "read", f"`{last}` at the end of the name"
    return "may write", f"`{head}` in the name"


def _find_joined_noun(parts: tuple[str, ...]) -> str | None:
    """Return the noun that is a verb here because of the word before it: `check_and_merge`."""
    pairs = pairwise(parts)
    return next((part for before, part in pairs if before in _CONJUNCTIONS and part in verbs.MAY_WRITE), None)


def _is_reader(choice: str) -> bool:
    return _read_name(_parts(choice))[0] in ("read", "may read")


def _read_sentence(sentence: str) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    """Return a sentence's first verb, the verbs of writing joined by `and` or the like, and all verbs of writing."""
    if not sentence.isascii() and (found := _read_parts(sentence)):
        return found, (), ()
    words = _WORD.findall(sentence)
    forms = verbs.english_forms()
    verbs_found = [(at, forms[word]) for at, word in enumerate(words) if word in forms]
    lead = next(
        (verb for at, verb in verbs_found if at == 0 or (at < _LEADING_WORDS and verb not in verbs.MAY_WRITE)), None
    )
    added = [
        verb
        for at, verb in verbs_found
        if at and words[at - 1] in _CONJUNCTIONS and (verb in verbs.WRITE or _is_beside_verb(words[at - 2 : at + 1]))
    ]
    others = [verb for _, verb in verbs_found if verb in verbs.WRITE]
    return lead, tuple(dict.fromkeys(added)), tuple(dict.fromkeys([*added, *others]))


def _is_beside_verb(words: list[str]) -> bool:
    """Return whether the last of three words is a verb like the first: in `get or set`, not in `issues and logs`."""
    forms = verbs.english_forms()
    return len(words) == 3 and words[0] in forms and forms.get(words[2]) in verbs.MAY_WRITE and words[1].isalpha()


def _read_parts(sentence: str) -> str | None:
    for part in (*verbs.WRITE_PARTS, *verbs.READ_PARTS):
        if part in sentence:
            return part if part in verbs.WRITE_PARTS else "read"
    return None


@lru_cache(maxsize=5000)
def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.casefold() for part in split_name(name[:_MAX_NAME]))


def _members(data: Raw) -> Mapping[str, Raw]:
    try:
        return wire.members(data)
    except wire.Malformed:
        return {}


def _choices(schema: Raw) -> tuple[str, ...]:
    allowed = wire.value(wire.member(schema, "enum"))
    if not isinstance(allowed, list):
        return ()
    return tuple(each for each in allowed[:_MAX_CHOICES] if isinstance(each, str))


def _hints(annotations: Raw) -> dict[str, bool]:
    members = wire.value(annotations)
    if not isinstance(members, dict):
        return {}
    return {key: value for key, value in members.items() if isinstance(value, bool)}


@lru_cache(maxsize=256)
def _globs(patterns: tuple[str, ...]) -> Globs:
    return Globs(patterns)
