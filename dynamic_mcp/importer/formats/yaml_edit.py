"""Changes one value in a YAML text. ruamel.yaml provides the positions; the surrounding bytes stay unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.formats import yaml_text
from dynamic_mcp.importer.formats.tree import NOTHING, at

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NOT_PLAIN = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])

Node = Any  # ruamel's nodes have no types


def parse(text: str) -> object:
    """Return the values in a text. Raises ValueError."""
    value = yaml_text.loads(text)
    return {} if value is None else value


def put(text: str, path: Keys, value: object) -> str:
    """Return the text with a value at a path; a new value goes after its neighbours. Raises ValueError."""
    there = parse(text)
    depth = next((n for n in range(len(path)) if at(there, path[: n + 1]) is NOTHING), len(path))
    eol = "\r\n" if "\r\n" in text else "\n"
    if depth == len(path):
        return _replace(text, path, value)
    if at(there, path[:depth]) in (None, {}, []):
        return _fill(text, path[:depth], _wrap(path[depth:], value), eol)
    return _add(text, path[:depth], path[depth], _wrap(path[depth + 1 :], value), eol)


def drop(text: str, path: Keys) -> str:
    """Return the text without the value at a path. Raises ValueError."""
    if at(parse(text), path) is NOTHING:
        return text
    root = _compose(text)
    container = _find_node(root, path[:-1])
    key, node = _find_entry(container, path[-1])
    if container.flow_style:
        return _drop_in_flow(text, container, path[-1])
    if len(container.value) == 1:
        return _empty(text, root, path, _find_end(node))
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip(" -") or (
        text[start : key.start_mark.index].strip() and not isinstance(path[-1], int)
    ):
        raise ValueError("it shares its line with another value")
    end = _find_line_end(text, _find_end(node))
    return text[:start] + text[end + 1 :] if end < len(text) else text[:start]


def _empty(text: str, root: Node, path: Keys, end: int) -> str:
    """Return the text without the only entry of a container; the container stays."""
    container = _find_node(root, path[:-1])
    start = text.rfind("\n", 0, container.start_mark.index) + 1
    rest = text[_find_line_end(text, end) + 1 :]
    if len(path) == 1:
        return text[:start] + rest
    if isinstance(path[-2], int):
        raise ValueError("it is the only value of a list item")  # noqa: TRY004 -- the text is at fault
    owner = _find_owner(root, path[:-1])
    colon = text.index(":", owner.end_mark.index) + 1
    return f"{text[:colon]} {'[]' if isinstance(path[-1], int) else '{}'}{text[colon:start]}{rest}"


def _wrap(path: Keys, value: object) -> object:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _compose(text: str) -> Node:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="rt", pure=True).compose(text)
    except (YAMLError, RecursionError) as exc:
        raise ValueError("is too complex to be edited") from exc


def _find_node(node: Node, path: Keys) -> Node:
    for key in path:
        _, node = _find_entry(node, key)
    return node


def _find_entry(container: Node, key: str | int) -> tuple[Node, Node]:
    """Return the positions of an entry's key and value in a mapping or list."""
    if isinstance(key, int):
        return container.value[key], container.value[key]
    return next((name, value) for name, value in reversed(container.value) if name.value == key)


def _find_owner(root: Node, path: Keys) -> Node:
    """Return the key that a container belongs to."""
    return _find_entry(_find_node(root, path[:-1]), path[-1])[0]


def _find_end(node: Node) -> int:
    """Return the position of a value's last character, without trailing blank lines and comments."""
    while isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _find_line_end(text: str, position: int) -> int:
    """Return the end of the line; a position after a line break is already there."""
    if position and text[position - 1] == "\n":
        return position - 1
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _trim_end(text: str, end: int) -> int:
    return end - 1 if text[end - 1] == "\n" else end


def _replace(text: str, path: Keys, value: object) -> str:
    node = _find_node(_compose(text), path)
    if isinstance(node.value, list) and not node.flow_style:
        raise ValueError("it spans several lines")
    return text[: node.start_mark.index] + _write_flow(value) + text[_trim_end(text, _find_end(node)) :]


def _fill(text: str, path: Keys, value: object, eol: str) -> str:
    """Return the text with content in a container that is empty."""
    if not path:
        gap = "" if not text or text.endswith("\n") else eol
        return text + gap + eol.join(_write_block(value, 0)) + eol
    root = _compose(text)
    node = _find_node(root, path)
    if isinstance(node.value, list) and node.flow_style:
        return text[: node.start_mark.index] + _write_flow(value) + text[node.end_mark.index :]
    owner = _find_owner(root, path)
    colon = text.index(":", owner.end_mark.index) + 1
    end = _find_line_end(text, max(colon, int(node.end_mark.index) if node.value else colon))
    end -= text[end - 1 : end] == "\r"
    kept = text[colon:end].replace(node.value, "", 1).rstrip() if node.value else text[colon:end].rstrip()
    lines = _write_block(value, owner.start_mark.column + 2)
    return text[:colon] + kept + eol + eol.join(lines) + text[end:]


def _add(text: str, path: Keys, key: str | int, value: object, eol: str) -> str:
    container = _find_node(_compose(text), path)
    if isinstance(container.value, str):
        raise ValueError("it is a string")  # noqa: TRY004 -- the text is at fault
    if container.flow_style:
        item = _write_flow(value) if isinstance(key, int) else f"{_write_scalar(key)}: {_write_flow(value)}"
        end = container.end_mark.index - 1
        last = len(text[:end].rstrip())
        comma = " " if text[last - 1] == "," else ", "
        return text[:last] + comma + item + text[last:]
    column = _find_column(container, key)
    lines = _write_block([value] if isinstance(key, int) else {key: value}, column)
    end = _find_line_end(text, _find_end(container))
    end -= text[end - 1 : end] == "\r"
    return text[:end] + eol + eol.join(lines) + text[end:]


def _find_column(container: Node, key: str | int) -> int:
    if isinstance(key, int):
        return int(container.start_mark.column)
    return int(container.value[0][0].start_mark.column)


def _drop_in_flow(text: str, container: Node, key: str | int) -> str:
    index = key if isinstance(key, int) else [name.value for name, _ in container.value].index(key)
    spans = [
        (each[0].start_mark.index, each[1].end_mark.index)
        if isinstance(each, tuple)
        else (each.start_mark.index, each.end_mark.index)
        for each in container.value
    ]
    start, end = spans[index]
    if index + 1 < len(spans):
        end = spans[index + 1][0]
    elif index:
        start = spans[index - 1][1]
    return text[:start] + text[end:]


def _write_block(value: object, column: int) -> list[str]:
    """Write a mapping or list as indented lines."""
    indent = " " * column
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if _is_tall(inner):
                lines += [f"{indent}{_write_scalar(key)}:", *_write_block(inner, column + 2)]
            else:
                lines.append(f"{indent}{_write_scalar(key)}: {_write_flow(inner)}")
        return lines
    assert isinstance(value, list)
    for each in value:
        first, *rest = _write_block(each, column + 2) if isinstance(each, Mapping) and each else [_write_flow(each)]
        lines += [f"{indent}- {first.lstrip()}", *rest]
    return lines


def _is_tall(value: object) -> bool:
    is_list_of_tall = isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
    return is_list_of_tall or (isinstance(value, Mapping) and bool(value))


def _write_flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_write_scalar(key)}: {_write_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_flow, value)) + "]"
    return _write_scalar(value)


def _write_scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return json.dumps(value, ensure_ascii=False)
