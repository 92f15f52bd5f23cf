"""The env file that holds the secrets of a config, which then refers to them: `TOKEN='…'` here, `${TOKEN}` there."""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from io import StringIO
from pathlib import Path

from dynamic_mcp.config.environment import read_env_file, resolve_path
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.importer.secrets import Secret, rewritten, secrets, text_at

_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)")


class Vault:
    """One env file and the variables that are moved into it; a variable is one server's, so that each can change."""

    def __init__(self, document: Mapping[str, object], output: Path, home: str) -> None:
        self.named = _named(document)
        self.name = self.named or f"{output.stem}.env"
        self.file = resolve_path(self.name, {"HOME": home}, base=output.parent)
        self._known = _variables(self.file)
        self._moved: dict[str, str] = {}
        self.values: MutableMapping[str, str] = ChainMap(self._moved, self._known)

    def move(self, server: str, entry: Mapping[str, object], mine: Mapping[str, object] | None) -> dict[str, object]:
        """Return the entry with references in the place of its secrets; those that `mine` has are used again."""
        parts: list[tuple[Secret, str]] = []
        for secret in secrets(entry):
            name = self._again(secret, entry, mine) or self._free(secret, server, text_at(entry, secret.path))
            # the values of the file are not expanded, so that they need no escape
            self._moved[name] = secret.value.replace("$${", "${")
            parts.append((secret, f"${{{name}}}"))
        return rewritten(entry, parts)

    def used(self, servers: Mapping[str, object]) -> dict[str, str]:
        """Return what is to be written: the variables that were moved and that the servers refer to."""
        names = set(_REFERENCE.findall(json.dumps(list(servers.values()), ensure_ascii=False)))
        changed = {name: value for name, value in self._moved.items() if self._known.get(name) != value}
        return {name: value for name, value in changed.items() if name in names}

    def _again(self, secret: Secret, entry: Mapping[str, object], mine: Mapping[str, object] | None) -> str:
        """Return the variable that stands at this place already."""
        references = _REFERENCE.findall(text_at(mine, secret.path)) if mine is not None else []
        moved = [str(name) for name in references if name in self._known]
        here = [each for each in secrets(entry) if each.path == secret.path]
        return moved[here.index(secret)] if len(moved) == len(here) else ""

    def _free(self, secret: Secret, server: str, text: str) -> str:
        """Return a name that nothing has; not one that the text refers to, which would be its own default."""
        taken = {*self._known, *self._moved, *_REFERENCE.findall(text)}
        own = _variable(f"{server}_{secret.name}")
        plain = [_variable(secret.name)] if secret.path == ("env", secret.name) else []
        numbered = (f"{own}_{number}" for number in range(2, len(self._known) + len(self._moved) + 3))
        return next(name for name in (*plain, own, *numbered) if name not in taken)


def updated(text: str, variables: Mapping[str, str]) -> str:
    """Return the text of an env file with these variables in it; the other lines stay."""
    from dotenv.parser import parse_stream

    lines = {name: f"{name}={_quoted(value)}\n" for name, value in variables.items()}
    parts = [lines.pop(each.key or "", each.original.string) for each in parse_stream(StringIO(text))]
    if parts and lines and not parts[-1].endswith("\n"):
        parts.append("\n")
    return "".join([*parts, *lines.values()])


def _named(document: Mapping[str, object]) -> str:
    settings = document.get("settings")
    named = settings.get("variables_file") if isinstance(settings, Mapping) else None
    if isinstance(named, list) and named:
        named = named[-1]
    return named if isinstance(named, str) else ""


def _variables(file: Path) -> dict[str, str]:
    try:
        return read_env_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ConfigError(str(file), "", "cannot be read", hint="put it right or move it away") from exc


def _variable(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
