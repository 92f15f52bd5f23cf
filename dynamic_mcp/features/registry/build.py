"""Builds the entry of the config from a package or a remote and the user's answers.

All texts of the registry are literal: a `${NAME}` in them never reads a variable of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from itertools import pairwise
from typing import TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.types import HEADER_NAME, VARIABLE_NAME, check_url
from dynamic_mcp.features.registry.document import (
    Package,
    RemoteServer,
    ServerDocument,
    ValueInput,
    fill_in,
    is_reference,
)
from dynamic_mcp.features.registry.hazards import (
    is_heeded,
    is_private_host,
    warnings_about_runtime,
    warnings_about_variables,
)
from dynamic_mcp.features.registry.questions import ServerAnswers, ValuePart, ValuePlace, parts_of
from dynamic_mcp.features.registry.runtimes import (
    StartWords,
    UnusableOption,
    own_words,
    programs_of,
    start,
    warnings_about,
)

Entry: TypeAlias = dict[str, object]

# Replaces the `${` of a reference until all other texts are escaped; no answer and no document contains it.
_MARK = "\0"
_HAS_REFERENCE = re.compile(r"(?<!\$)\$\{")
_WHOLE_REFERENCE = re.compile(r"(?<!\$)\$\{\w+\}")
_REFERENCE = re.compile(r"(?<!\$)\$\{[^}]*\}?")
_ENVIRONMENT_FLAGS = ("-e", "--env")


class EntryDraft(Struct, frozen=True):
    """An entry of the config, and warnings for the user."""

    entry: Entry
    warnings: tuple[str, ...] = ()


def build(document: ServerDocument, option: Package | RemoteServer, answers: ServerAnswers) -> EntryDraft:
    """Return the entry for an option of a document; what is unanswered must have a default. Raises UnusableOption."""
    about: Entry = {"description": document.description} if document.description else {}
    if isinstance(option, Package):
        entry, warnings = _build_program(option, answers)
    else:
        entry = _build_remote(option, answers)
        warnings = _warnings_about_url(str(entry["url"]))
    _check_references(entry, answers)
    unknown = (
        f"`{{{name}}}` in `{part.name}` is not filled in, since the registry says nothing about it"
        for part in parts_of(option)
        if part.place in (ValuePlace.VARIABLE, ValuePlace.HEADER)
        for name in part.input.unknown_names
    )
    return EntryDraft(about | entry, (*warnings, *unknown))


def command_line(entry: Mapping[str, object]) -> list[str]:
    """Return the command line of an entry; empty for a remote one."""
    args = entry.get("args")
    return [str(entry["command"]), *(args if isinstance(args, list) else [])] if "command" in entry else []


def texts_of(entry: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts of an entry, including those in its lists and objects."""
    for value in entry.values():
        items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
        yield from (each for each in items if isinstance(each, str))


def _build_program(package: Package, answers: ServerAnswers) -> tuple[Entry, tuple[str, ...]]:
    runtime: list[str] = []
    arguments: list[str] = []
    env: dict[str, str] = {}
    for part in parts_of(package):
        values = list(_values_of(part, answers))
        match part.place:
            case ValuePlace.VARIABLE:
                _check_name(part.name, VARIABLE_NAME, "an environment variable")
                if package.kind == "oci" and is_heeded(part.name):  # the container gets it, docker itself does not
                    runtime += ["-e", f"{part.name}={values[0]}"] if values else []
                else:
                    env |= {part.name: values[0]} if values else {}
            case ValuePlace.RUNTIME:
                for value in values:
                    runtime += _hide_secret(part, value, env) if package.kind == "oci" else _words(part, value)
            case _:
                arguments += [word for value in values for word in _words(part, value)]
    passed = tuple(name for name in env if not _passes(runtime, name))
    command, *args = start(package, StartWords(tuple(runtime), tuple(arguments), passed))
    entry: Entry = {"command": command, "args": args} | ({"env": env} if env else {})
    return entry, (*warnings_about(package), *_warnings_about_words(package, runtime, args, env))


def _build_remote(remote: RemoteServer, answers: ServerAnswers) -> Entry:
    headers: dict[str, str] = {}
    url = ""
    for part in parts_of(remote):
        values = list(_values_of(part, answers))
        if part.place is ValuePlace.URL:
            url = next(iter(values), part.input.value or "")  # a missing value is refused below
        elif values:
            _check_name(part.name, HEADER_NAME, "a header")
            headers[part.name] = values[0]
    _check_remote_url(url)
    return {"type": remote.kind, "url": url} | ({"headers": headers} if headers else {})


def _values_of(part: ValuePart, answers: ServerAnswers) -> Iterator[str]:
    """Yield the values of a part for the config; none if it is left out."""
    source = part.input
    if source.value is None:
        yield from map(_write, _texts_of(answers.get(part.keys[""]), source))
        return
    texts = {name: _texts_of(answers.get(key), source.variables[name]) for name, key in part.keys.items()}
    if not all(texts.values()):  # an optional value is missing
        return
    for number in range(max(map(len, texts.values()), default=1)):
        filled = {name: values[min(number, len(values) - 1)] for name, values in texts.items()}
        if part.place is ValuePlace.URL:
            filled = {name: text if _MARK in text else quote(text, safe="") for name, text in filled.items()}
        yield _write(fill_in(source.value, filled))


def _texts_of(answers: tuple[str, ...] | None, source: ValueInput) -> tuple[str, ...]:
    """Return the answers, else the default, with references marked. Defaults have none."""
    if answers:
        return tuple(text.replace("${", _MARK) if is_reference(text) else text for text in answers)
    default = source.valid_default
    return () if default is None else (default,)


def _write(text: str) -> str:
    """Return a text for the config, in which only marked references stay references. Raises UnusableOption."""
    if f"${_MARK}" in text:
        raise UnusableOption("a `$` stands right before a variable, which a config cannot say")
    return text.replace("${", "$${").replace(_MARK, "${")


def _words(part: ValuePart, value: str) -> list[str]:
    """Return the words of an argument: a long flag and its value are one word, so that no value becomes a flag."""
    if not part.name:
        return [value]
    name = _write(part.name)
    if not value:
        return [name]
    is_short = name.startswith("-") and not name.startswith("--")
    return [name, value] if is_short else [f"{name}={value}"]


def _hide_secret(part: ValuePart, value: str, env: dict[str, str]) -> list[str]:
    """Shorten `-e NAME=${SECRET}` to `-e NAME`, with the value in the environment, hidden from other users."""
    name, equals, rest = value.partition("=")
    is_hidden = part.name in _ENVIRONMENT_FLAGS and equals and _HAS_REFERENCE.search(rest)
    if not is_hidden or is_heeded(name) or not re.fullmatch(VARIABLE_NAME, name):
        return _words(part, value)
    env[name] = rest
    return ["-e", name]


def _passes(runtime: list[str], name: str) -> bool:
    """Return whether a container already gets this environment variable."""
    pairs = pairwise(runtime)
    return any(flag in _ENVIRONMENT_FLAGS and word == name for flag, word in pairs) or f"--env={name}" in runtime


def _check_name(name: str, pattern: str, what: str) -> None:
    if not re.fullmatch(pattern, name):
        raise UnusableOption(f"`{name[:100]}` is not the name of {what}")


def _check_remote_url(url: str) -> None:
    shown = _WHOLE_REFERENCE.sub("x", url)
    if re.search(r"[{}\s]", shown):
        raise UnusableOption(f"nothing says how to fill in its URL: `{url[:200]}`")
    try:
        parts = urlsplit(check_url(shown))
        host = parts.hostname or ""
    except (FlawError, ValueError):
        raise UnusableOption(f"its URL cannot be used: `{url[:200]}`") from None
    if not shown.isascii() or "@" in parts.netloc or "\\" in shown:
        raise UnusableOption(f"its URL does not say plainly what it reaches: `{url[:200]}`")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_this_machine(host)):
        raise UnusableOption(f"its URL is not https: `{url[:200]}`")


def _warnings_about_url(url: str) -> tuple[str, ...]:
    host = urlsplit(url).hostname or ""
    return (f"`{host}` is this machine, or in a private network",) if is_private_host(host) else ()


def is_this_machine(host: str) -> bool:
    """Return whether a host name means this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _warnings_about_words(
    package: Package, runtime: list[str], args: list[str], env: Mapping[str, str]
) -> Iterator[str]:
    yield from warnings_about_variables([*env])
    yield from warnings_about_runtime(package.kind, programs_of(package)[0], own_words(package, runtime))
    if any(_HAS_REFERENCE.search(word) for word in args):
        yield "a variable in `args` can be seen by all users of this machine while the server runs"


def _check_references(entry: Entry, answers: ServerAnswers) -> None:
    """Check that an entry refers only to variables of the answers. Raises UnusableOption."""
    source = {text for texts in answers.values() for text in texts if is_reference(text)}
    if found := {match[0] for word in texts_of(entry) for match in _REFERENCE.finditer(word)} - source:
        raise UnusableOption(
            f"it refers to variables of this machine: {', '.join(f'`{each}`' for each in sorted(found))}"
        )
