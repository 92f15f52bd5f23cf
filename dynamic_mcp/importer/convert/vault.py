"""The secrets of entries, and where they go.

In an env file, they are `TOKEN='…'`, and `${TOKEN}` in the config. In the system's keychain, the config has
`${keyring:server/TOKEN}`.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from io import StringIO
from itertools import chain, count
from pathlib import Path

from dynamic_mcp.config.environment import read_env_file, resolve_path
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.secrets import MASKED, Secret, find_in_text, find_literals, mask_text
from dynamic_mcp.errors import ConfigError

_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)")
_KEYCHAIN_REFERENCE = re.compile(r"\$\{keyring:([^{}]+)\}")
_PLACES_OF_LOOKUPS = ("env", "args", "headers")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHORTEST_PLAIN = 5


class Vault:
    """One env file and the variables that are moved into it; no two servers share a variable."""

    def __init__(self, document: Mapping[str, object], output: Path, home: str) -> None:
        self.configured_name = _configured_name(document)
        self.name = self.configured_name or f"{output.stem}.env"
        self.file = resolve_path(self.name, {"HOME": home}, base=output.parent)
        self._variables_before = _read_variables(self.file)
        self._moves: dict[str, str] = {}
        self.values: MutableMapping[str, str] = ChainMap(self._moves, self._variables_before)

    def move(self, server: str, entry: Mapping[str, object], mine: Mapping[str, object] | None) -> dict[str, object]:
        """Return the entry with its secrets replaced by references; existing references in `mine` are reused."""
        parts: list[tuple[Secret, str]] = []
        for secret in secrets(entry):
            name = self._reuse_variable(secret, entry, mine) or self._new_variable(
                secret, server, text_at(entry, secret.path)
            )
            # values in the file are not expanded, so they need no escaping
            self._moves[name] = secret.value.replace("$${", "${")
            parts.append((secret, f"${{{name}}}"))
        return rewritten(entry, parts)

    def keep(self, server: str, name: str, value: str) -> str:
        """Add a secret of a server; return its variable: `name`, unless that already has another value."""
        of_server, plain = to_variable(f"{server}_{name}"), to_variable(name)
        numbered = (f"{of_server}_{number}" for number in range(2, len(self.values) + 3))
        variable = next(each for each in (plain, of_server, *numbered) if self.values.get(each) in (None, value))
        self._moves[variable] = value
        return variable

    def changed_variables(self, servers: Mapping[str, object]) -> dict[str, str]:
        """Return the variables to write: those that were moved and that the servers refer to."""
        names = set(_REFERENCE.findall(json.dumps(list(servers.values()), ensure_ascii=False)))
        changed = {name: value for name, value in self._moves.items() if self._variables_before.get(name) != value}
        return {name: value for name, value in changed.items() if name in names}

    def _reuse_variable(self, secret: Secret, entry: Mapping[str, object], mine: Mapping[str, object] | None) -> str:
        """Return the existing variable at this place, or an empty text."""
        references = _REFERENCE.findall(text_at(mine, secret.path)) if mine is not None else []
        moved = [str(name) for name in references if name in self._variables_before]
        here = [each for each in secrets(entry) if each.path == secret.path]
        return moved[here.index(secret)] if len(moved) == len(here) else ""

    def _new_variable(self, secret: Secret, server: str, text: str) -> str:
        """Return an unused name, and none that the text refers to, since it would be its own default."""
        taken = {*self._variables_before, *self._moves, *_REFERENCE.findall(text)}
        of_server = to_variable(f"{server}_{secret.name}")
        plain = [to_variable(secret.name)] if secret.path == ("env", secret.name) else []
        numbered = (f"{of_server}_{number}" for number in range(2, len(taken) + 3))
        return next(name for name in (*plain, of_server, *numbered) if name not in taken)


class KeychainMoves:
    """The secrets that are moved into the system's keychain: `${keyring:server/TOKEN}` in the config.

    `read` returns what the keychain has under a name.
    """

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._moves: dict[str, str] = {}

    def move(self, server: str, entry: Mapping[str, object], mine: Mapping[str, object] | None) -> dict[str, object]:
        """Return the entry with references for those of its secrets whose places can have them."""
        parts: list[tuple[Secret, str]] = []
        for secret in secrets(entry):
            if secret.path[0] in _PLACES_OF_LOOKUPS:
                value = secret.value.replace("$${", "${")
                name = self._choose_name(f"{server}/{secret.name}", value)
                self._moves[name] = value
                parts.append((secret, f"${{keyring:{name}}}"))
        return rewritten(entry, parts)

    def list_new(self, servers: Mapping[str, object]) -> dict[str, str]:
        """Return the secrets to store: those that were moved and that the servers refer to, by their names."""
        names = set(_KEYCHAIN_REFERENCE.findall(json.dumps(list(servers.values()), ensure_ascii=False)))
        return {name: value for name, value in self._moves.items() if name in names}

    def _choose_name(self, text: str, value: str) -> str:
        """Return a name that has no other secret."""
        plain = re.sub(r"[^A-Za-z0-9_./@-]+", "_", text)
        names = chain([plain], (f"{plain}-{number}" for number in count(2)))
        return next(each for each in names if (self._moves.get(each) or self._read(each)) in (None, value))


def set_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return the text of an env file with these variables set; other lines stay unchanged."""
    from dotenv.parser import parse_stream

    lines = {name: f"{name}={_quote(value)}\n" for name, value in variables.items()}
    parts = [lines.pop(each.key or "", each.original.string) for each in parse_stream(StringIO(text))]
    if parts and lines and not parts[-1].endswith("\n"):
        parts.append("\n")
    return "".join([*parts, *lines.values()])


def _configured_name(document: Mapping[str, object]) -> str:
    settings = document.get("settings")
    named = settings.get("variables_file") if isinstance(settings, Mapping) else None
    if isinstance(named, list) and named:
        named = named[-1]
    return named if isinstance(named, str) else ""


def _read_variables(file: Path) -> dict[str, str]:
    try:
        return read_env_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ConfigError(str(file), "", "cannot be read", hint="fix it or move it away") from exc


def to_variable(text: str) -> str:
    """Convert a text to the name of a variable."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _quote(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def secrets(entry: Mapping[str, object]) -> list[Secret]:
    """Return the literal secrets of an entry of our config, in its order."""
    return list(find_literals(entry))


def masked(entry: Mapping[str, object]) -> dict[str, object]:
    """Return the entry with its secrets masked."""
    return rewritten(entry, [(secret, MASKED) for secret in secrets(entry)])


def rewritten(entry: Mapping[str, object], parts: list[tuple[Secret, str]]) -> dict[str, object]:
    """Return the entry with each secret replaced; from the last to the first, so that the positions stay valid."""
    changed: object = dict(entry)
    for secret, new in sorted(parts, key=lambda part: part[0].start, reverse=True):
        text = text_at(changed, secret.path)
        changed = _replaced(changed, secret.path, text[: secret.start] + new + text[secret.end :])
    assert isinstance(changed, dict)
    return changed


def text_at(entry: object, path: Keys) -> str:
    """Return the text at a path of an entry; empty if it is missing."""
    for key in path:
        try:
            entry = entry[key]  # type: ignore[index]  # a value without members raises the same error
        except (KeyError, IndexError, TypeError):
            return ""
    return entry if isinstance(entry, str) else ""


class Hiding:
    """Masks the secrets of entries in any text."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._plain: set[str] = set()

    def add(self, entry: Mapping[str, object]) -> None:
        """Mask the secrets of another entry of our config."""
        shown = masked(entry)
        for path in {secret.path for secret in secrets(entry)}:
            self._shown[json.dumps(text_at(entry, path), ensure_ascii=False)] = json.dumps(text_at(shown, path))

    def add_tree(self, value: object, name: str = "") -> None:
        """Mask values with names like a secret's, anywhere in a value of a foreign file."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.add_tree(inner, str(key))
        elif isinstance(value, list):
            before = ""
            for each in value:
                self.add_tree(each, before if before.startswith("-") else name)
                before = each if isinstance(each, str) else ""
        elif isinstance(value, str):
            parts = [secret.value for secret in find_in_text(value, name)]
            if value in parts:
                self._shown[json.dumps(value, ensure_ascii=False)] = json.dumps(MASKED)
            words = [word for part in parts for word in (part, *part.split())]
            self._plain.update(word for word in words if len(word) >= _SHORTEST_PLAIN)

    def hidden(self, line: str) -> str:
        line = _STRING.sub(lambda match: self._shown.get(match[0], match[0]), line)
        for value in sorted(self._plain, key=len, reverse=True):
            line = line.replace(value, MASKED)
        return mask_text(line)


def _replaced(value: object, path: Keys, new: str) -> object:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {key: _replaced(inner, rest, new) if key == head else inner for key, inner in value.items()}
    assert isinstance(value, list)
    return [_replaced(inner, rest, new) if index == head else inner for index, inner in enumerate(value)]
