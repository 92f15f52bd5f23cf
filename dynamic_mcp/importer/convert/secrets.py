"""The secrets of an entry: hidden where the entry is shown, replaced where they move into an env file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.secrets import MASKED, Secret, find_in_text, find_literals, mask_text

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHORTEST_PLAIN = 5


def secrets(entry: Mapping[str, object]) -> list[Secret]:
    """The literal secrets of an entry of our config, in its order."""
    return list(find_literals(entry))


def masked(entry: Mapping[str, object]) -> dict[str, object]:
    """The entry as it may be shown."""
    return rewritten(entry, [(secret, MASKED) for secret in secrets(entry)])


def rewritten(entry: Mapping[str, object], parts: list[tuple[Secret, str]]) -> dict[str, object]:
    """The entry with each secret replaced; from the last to the first, so that the places stay true."""
    changed: object = dict(entry)
    for secret, new in sorted(parts, key=lambda part: part[0].start, reverse=True):
        text = text_at(changed, secret.path)
        changed = _replaced(changed, secret.path, text[: secret.start] + new + text[secret.end :])
    assert isinstance(changed, dict)
    return changed


def text_at(entry: object, path: Keys) -> str:
    """The text at a path of an entry; an empty one where there is none."""
    for key in path:
        try:
            entry = entry[key]  # type: ignore[index]  # what has no members has none of this key either
        except (KeyError, IndexError, TypeError):
            return ""
    return entry if isinstance(entry, str) else ""


class Hiding:
    """Makes the secrets of some entries unreadable in a text that they stand in."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._plain: set[str] = set()

    def add(self, entry: Mapping[str, object]) -> None:
        """Hide the secrets of one more entry of our config."""
        shown = masked(entry)
        for path in {secret.path for secret in secrets(entry)}:
            self._shown[json.dumps(text_at(entry, path), ensure_ascii=False)] = json.dumps(text_at(shown, path))

    def add_tree(self, value: object, name: str = "") -> None:
        """Hide what is named like a secret anywhere in a value of a foreign file."""
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
        """The line as it may be shown."""
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
