"""The text of a config without the secrets in it, and back: a masked text stands for what is there.

All else keeps its place, comments included. References such as `${TOKEN}` are no secrets, and stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.flaws import Problem
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.secrets import MASKED, find_in_text, find_secrets, is_secret_name, mask_text

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Of references alone, with a scheme perhaps, or what separates them.
_REFERENCES = re.compile(
    r"(?:(?:bearer|basic|token|apikey)\s++|\$\{[A-Za-z_][A-Za-z0-9_]*+\}|[\s:,;/@]++)*+", re.IGNORECASE
)
# In comments, and in what is no JSON: a name and what may be its value.
_PAIR = re.compile(r"""(?P<name>[\w.-]+)(?P<between>["']?\s*[:=]\s*["']?)(?P<value>[^\s"',;]+)""")
# Where names are those of roles and people, and no values are secret.
_PLAIN = (("settings", "access"), ("profiles",))


def mask_config(text: str) -> str:
    """Return the text of a config without the secrets in its values and comments, also if it is invalid."""
    try:
        tree = jsonc.loads(text)
    except (JSONDecodeError, jsonc.DuplicateKeyError, RecursionError):
        return "".join(map(_mask_loosely, text.splitlines(keepends=True)))
    masks = _find_masks(tree)
    comments = jsonc.find_comments(text)
    parts, end = list[str](), 0
    for start, stop, path in sorted([*_locate(text, tree), *((start, stop, None) for start, stop in comments)]):
        whole = text[start:stop]
        if path is None:
            shown = _mask_loosely(whole)
        else:
            shown = json.dumps(masks[path], ensure_ascii=False) if path in masks else whole
        parts += [text[end:start], shown]
        end = stop
    return "".join([*parts, text[end:]])


def unmask_tree(tree: object, original: object) -> tuple[object, list[Problem]]:
    """Return a config in which masked texts are those of the original at the same place, and those that are not."""
    masks, problems = _find_masks(original), list[Problem]()
    values = {path: value for path, value in _leaves(original) if path in masks}

    def fill(value: object, path: Keys) -> object:
        if isinstance(value, dict):
            return {name: fill(each, (*path, name)) for name, each in value.items()}
        if isinstance(value, list):
            return [fill(each, (*path, number)) for number, each in enumerate(value)]
        if not isinstance(value, str) or MASKED not in value:
            return value
        for place in (path, *_beside(path, masks)):
            if masks.get(place) == value:
                return values[place]
        hint = "write the value, or better a reference such as `${VARIABLE}`"
        problems.append(Problem(format_path(path), f"`{MASKED}` stands for no value that is there", hint))
        return value

    return fill(tree, ()), problems


def _beside(path: Keys, masks: Mapping[Keys, str]) -> Iterator[Keys]:
    """Yield the other places of the same list, whose items may have moved."""
    if path and isinstance(path[-1], int):
        yield from (each for each in masks if each[:-1] == path[:-1])


def _find_masks(tree: object) -> dict[Keys, str]:
    """Return what is shown of the texts that have secrets in them, by their paths."""
    masks: dict[Keys, str] = {}
    servers = tree.get("mcpServers") if isinstance(tree, dict) else None
    for name, server in servers.items() if isinstance(servers, dict) else ():
        if isinstance(server, dict):
            for path, shown in _mask_server(server):
                masks["mcpServers", name, *path] = shown
    for path, value in _leaves(tree):
        shown = _mask_leaf(path, masks.get(path, value))
        if shown != value:
            masks[path] = shown
    return masks


def _mask_server(server: Mapping[str, object]) -> Iterator[tuple[Keys, str]]:
    found: dict[Keys, list[tuple[int, int]]] = {}
    for secret in find_secrets(server):
        found.setdefault(secret.path, []).append((secret.start, secret.end))
    leaves = dict(_leaves(server))
    for path, spans in found.items():
        if path in leaves:
            yield path, _hide(leaves[path], spans)


def _mask_leaf(path: Keys, text: str) -> str:
    name = next((str(each) for each in reversed(path) if isinstance(each, str)), "")
    is_named = is_secret_name(name) and not any(path[: len(each)] == each for each in _PLAIN)
    if is_named and text and MASKED not in text and not _REFERENCES.fullmatch(text):
        return MASKED
    return _hide(text, [(each.start, each.end) for each in find_in_text(text, "")])


def _hide(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        if not _REFERENCES.fullmatch(text[start:end]):
            text = text[:start] + MASKED + text[end:]
    return text


def _mask_loosely(text: str) -> str:
    def hide(pair: re.Match[str]) -> str:
        is_secret = is_secret_name(pair["name"]) and not _REFERENCES.fullmatch(pair["value"])
        return f"{pair['name']}{pair['between']}{MASKED}" if is_secret else pair[0]

    return mask_text(_PAIR.sub(hide, text))


def _leaves(tree: object, path: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield all texts that are values, in the order of the document."""
    if isinstance(tree, str):
        yield path, tree
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, each in children:
        yield from _leaves(each, (*path, key))


def _locate(text: str, tree: object) -> Iterator[tuple[int, int, Keys]]:
    """Yield where the texts that are values are: the strings of the document are its names and values in order."""
    places = (match.span() for match in _STRING.finditer(jsonc.blank_extensions(text)))
    for path, (start, end) in zip(_strings(tree, ()), places, strict=True):
        if path is not None:
            yield start, end, path


def _strings(tree: object, path: Keys) -> Iterator[Keys | None]:
    """Yield the path of each string of a document: None for a name."""
    if isinstance(tree, str):
        yield path
    elif isinstance(tree, dict):
        for name, each in tree.items():
            yield None
            yield from _strings(each, (*path, name))
    elif isinstance(tree, list):
        for number, each in enumerate(tree):
            yield from _strings(each, (*path, number))
