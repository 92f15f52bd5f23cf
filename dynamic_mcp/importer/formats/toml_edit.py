"""Changes one value in a TOML text: by lines if possible, else with tomlkit. The rest of the text stays unchanged."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.formats.tree import NOTHING, at, is_like, with_value, without

_HEADER = re.compile(r"\s*(\[\[?.*?\]\]?)\s*(?:#.*)?")
_ASIDE = re.compile(r"\s*(?:#.*)?")


def parse(text: str) -> object:
    """Return the values in a text. Raises ValueError."""
    return tomllib.loads(text)


def put(text: str, path: Keys, value: object) -> str:
    """Return the text with a value at a path; a new table goes to the end. Raises ValueError and KeyError."""
    expected = with_value(tomllib.loads(text), path, value)
    return _first_match(
        expected, [_append_table(text, path, value), _insert_below_header(text, path, value)]
    ) or _edit_with_tomlkit(text, path, value)


def drop(text: str, path: Keys) -> str:
    """Return the text without the value at a path. Raises ValueError and KeyError."""
    there = tomllib.loads(text)
    if at(there, path) is NOTHING:
        return text
    return _first_match(without(there, path), [_drop_tables(text, path)]) or _edit_with_tomlkit(text, path, NOTHING)


def _first_match(expected: object, texts: Iterable[str]) -> str:
    for text in texts:
        try:
            if text and is_like(tomllib.loads(text), expected):
                return text
        except ValueError:
            continue
    return ""


def _append_table(text: str, path: Keys, value: object) -> str:
    """Return the text with a table at its end, with the same line endings."""
    if not isinstance(value, Mapping):
        return ""
    names = [_write_key(str(key)) for key in path if isinstance(key, str)]
    header = f"[[{'.'.join(names)}]]" if isinstance(path[-1], int) else f"[{'.'.join(names)}]"
    block = "".join(f"{line}\n" for line in (header, *(_write_pair(key, each) for key, each in value.items())))
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    eol = "\r\n" if "\r\n" in text else "\n"
    return text + (gap + block).replace("\n", eol)


def _insert_below_header(text: str, path: Keys, value: object) -> str:
    """Return the text with a field right below the header of its table."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if _table_path(line) == path[:-1] and not isinstance(value, Mapping):
            eol = "\r\n" if line.endswith("\r\n") else "\n"
            lines[number] = line if line.endswith("\n") else line + eol
            return "".join([*lines[: number + 1], _write_pair(str(path[-1]), value) + eol, *lines[number + 1 :]])
    return ""


def _drop_tables(text: str, path: Keys) -> str:
    """Return the text without the tables at and below a path; comments before the next table stay."""
    kept: list[str] = []
    aside: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        table = _table_path(line)
        if table is not None:
            if is_ours or table[: len(path)] != path:
                kept += aside
            is_ours = table[: len(path)] == path
            aside = []
        if not is_ours:
            kept.append(line)
        elif _ASIDE.fullmatch(line):
            aside.append(line)
        else:
            aside = []
    if is_ours:
        kept += aside
        while kept and not kept[-1].strip():
            kept.pop()
    return "".join(kept)


def _edit_with_tomlkit(text: str, path: Keys, value: object) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document: Any = tomlkit.parse(text)
    *way, last = path
    container = document
    try:
        for key in way:
            if isinstance(key, str) and key not in container:
                container[key] = tomlkit.table()
            container = container[key]
        if value is NOTHING:
            del container[last]
        elif isinstance(last, int) and last == len(container):
            container.append(value)
        else:
            container[last] = value
    except (TOMLKitError, IndexError) as exc:
        raise ValueError(str(exc)) from exc
    return str(tomlkit.dumps(document))


def _table_path(line: str) -> Keys | None:
    """Return the path of the table that a line starts, without indexes of lists."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    try:
        value: object = tomllib.loads(match[1])
    except ValueError:
        return None
    keys: list[str] = []
    while value:
        if isinstance(value, list):
            value = value[0]
            continue
        assert isinstance(value, dict)
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def _write_pair(key: str, value: object) -> str:
    return f"{_write_key(key)} = {_write_inline(value)}"


def _write_key(key: str) -> str:
    import tomlkit

    return tomlkit.key(key).as_string()


def _write_inline(value: object) -> str:
    import tomlkit

    if isinstance(value, Mapping):
        return "{ " + ", ".join(_write_pair(str(key), each) for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_inline, value)) + "]"
    return tomlkit.item(value).as_string()
