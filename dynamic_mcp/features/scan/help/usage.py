"""Parses the words of a usage line: `prog [OPTIONS] SOURCE... [DEST]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from dynamic_mcp.features.scan.facts import WordFact
from dynamic_mcp.features.scan.help.values import read_value

_TOKEN = re.compile(
    r"\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\](?:\.\.\.)?|<[^<>]*>(?:\.\.\.)?|\{[^{}]*\}(?:\.\.\.)?|\([^()]*\)(?:\.\.\.)?|[^\s\[\]<>{}]+"
)
_OPTIONS = re.compile(r"^(?:[\w-]+[- ])*(?:options?|flags?|switches)(?:\.\.\.)?$", re.IGNORECASE)
_COMMANDS = re.compile(r"^(?:sub)?-?commands?$", re.IGNORECASE)
_REST = re.compile(r"^(?:args?|arguments?)$", re.IGNORECASE)
_NAME = re.compile(r"[^a-z0-9]+")
_LITERAL = re.compile(r"[a-z][a-z0-9-]+")
_MAX_WORDS = 12


def read_usage(lines: Sequence[str], path: Sequence[str], *, is_group: bool) -> tuple[list[WordFact] | None, bool]:
    """Return the words of a usage, and whether it has `--`. The words are None if its lines differ too much.

    For a command that `is_group`, the name of the subcommand and the words after it are left out.
    """
    if not lines:
        return None, False
    tokens = [_TOKEN.findall(line) for line in lines]
    tokens = [line for line in tokens if path and path[-1] in line] or tokens  # the others are about other commands
    has_separator = any(each in ("--", "[--]") for line in tokens for each in line)
    read = [list(_read_words(_after_path(line, path), is_group=is_group)) for line in tokens]
    if len(read) > 1 and any(_shape(each) != _shape(read[0]) for each in read):
        return (_common(read), has_separator)
    return read[0][:_MAX_WORDS], has_separator


def commands_of_usage(lines: Sequence[str], path: Sequence[str]) -> list[str]:
    """Return the commands in several usage lines: `prog ship new NAME`, `prog ship move`."""
    following = (_after_path(_TOKEN.findall(line), path) for line in lines)
    return list(dict.fromkeys(rest[0] for rest in following if rest and _LITERAL.fullmatch(rest[0])))


def property_name(name: str) -> str:
    """Return the name of a word as an argument: lower case, digits and `_`."""
    return _NAME.sub("_", name.lower()).strip("_")[:64]


def _common(read: list[list[WordFact]]) -> list[WordFact] | None:
    """Return the words of several usages if one has them all; words that others lack are optional."""
    longest = max(read, key=len)
    others = {word.name for line in read for word in line}
    if others - {word.name for word in longest}:
        return None
    needed = set.intersection(*({word.name for word in line if word.required} for line in read))
    return [
        WordFact(name=w.name, type=w.type, values=w.values, required=w.name in needed, repeatable=w.repeatable)
        for w in longest
    ]


def _shape(words: Sequence[WordFact]) -> list[tuple[str, bool | None]]:
    return [(word.name, word.required) for word in words]


def _after_path(tokens: list[str], path: Sequence[str]) -> list[str]:
    """Return the tokens after the program's name and the command."""
    rest = tokens[1:]
    for word in path:
        if word in rest:
            rest = rest[rest.index(word) + 1 :]
    return rest


def _read_words(tokens: Sequence[str], *, is_group: bool) -> Iterator[WordFact]:
    takes_value = False
    previous = ""
    for token in takewhile(lambda each: not (is_group and _names_command(each)), tokens):
        if token.startswith("-"):
            takes_value = "=" not in token
            continue
        if takes_value and (token.isupper() or token.startswith("<")):
            takes_value = False
            continue  # of a flag that must be given: `--out FILE`
        takes_value = False
        bare = _strip(token)
        if token in ("...", "[...]") or bare == previous:
            continue
        previous = bare
        if word := _read_word(token):
            yield word


def _names_command(token: str) -> bool:
    return bool(_COMMANDS.match(_strip(token))) or token.startswith("{")


def _read_word(token: str) -> WordFact | None:
    inner = _strip(token)
    is_optional = token.startswith("[")
    is_repeatable = "..." in token
    if (is_optional and (inner.startswith("-") or _OPTIONS.match(inner))) or _OPTIONS.match(inner) or not inner:
        return None
    if is_optional and " " in inner:
        first, *others = inner.split()
        is_repeatable = is_repeatable or any(_strip(each) == _strip(first) for each in others)
        inner = _strip(first)
        if inner.startswith("-"):
            return None
    if "|" in inner and (" " in inner or len(inner) > 60):
        return WordFact(name="args", type="string", required=not is_optional, repeatable=True)
    value = read_value(token.strip("[]<>()").strip("<>") if "|" not in inner else token)
    name = property_name(inner)
    if (
        not name
        or not name[0].isalpha()
        or (not is_optional and inner.islower() and token == inner and _is_prose(token))
    ):
        return None
    type_ = value.type if value.type in ("integer", "number", "enum", "path") else "string"
    return WordFact(name=name, type=type_, values=value.values, required=not is_optional, repeatable=is_repeatable)


def _is_prose(token: str) -> bool:
    return token in ("or", "and", "with", "the", "a")


def _strip(token: str) -> str:
    text = token
    while text != (text := text.removesuffix("...").strip("[](){}<>. ")):
        pass
    return text
