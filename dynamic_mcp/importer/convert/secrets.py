"""What is confidential in an entry: found, made unreadable where it is shown, and moved into an env file.

A reference as `${TOKEN}` is no secret. A literal is one, also where it stands in for a variable: `${TOKEN:-literal}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.secrets import is_secret_name
from dynamic_mcp.upstream.mask import MASKED

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-|sk_live_|rk_live_|pk_live_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza"
    r"|ya29\.|npm_|pypi-|hf_|figd_|ntn_|lin_api_|SG\.|dop_v1_|shpat_|ATATT|dapi|eyJ[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_.-]{8,}"
)
_OPTION = re.compile(r"(--?[\w.-]+|[A-Za-z_][\w.-]*)([=:]\s*)(.+)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_REFERENCE = re.compile(r"(?<!\$)\$\{")
_DEFAULT = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*:-([^{}]+)\}")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|apikey)\s+")
_SHORTEST_PLAIN = 5
_NOT_SECRET = re.compile(r"\d{0,6}|true|false|null|none", re.IGNORECASE)
_HEADERS = re.compile(r"(?i)authorization|cookie|api-?key|auth|token|secret|signature")
_QUERY = re.compile(r"(?i)(?:^|[_-])(?:key|sig|code)$|apikey|token|secret|passw|auth")


@dataclass(frozen=True)
class Secret:
    """A literal: where its text is in the entry, where it is in the text, and the name that it has there."""

    path: Keys
    start: int
    value: str
    name: str

    def __repr__(self) -> str:
        return f"<Secret {'.'.join(map(str, self.path))}>"


def secrets(entry: Mapping[str, object]) -> list[Secret]:
    """The literal secrets of an entry of our config, in its order."""
    found = [*_in_env(entry), *_in_args(entry), *_in_url(entry), *_in_headers(entry), *_in_oauth(entry)]
    literal = [part for each in found for part in _literal(each)]
    return [each for each in dict.fromkeys(literal) if not _NOT_SECRET.fullmatch(each.value)]


def masked(entry: Mapping[str, object]) -> dict[str, object]:
    """The entry as it may be shown."""
    return rewritten(entry, [(secret, MASKED) for secret in secrets(entry)])


def rewritten(entry: Mapping[str, object], parts: list[tuple[Secret, str]]) -> dict[str, object]:
    """The entry with each secret replaced; from the last to the first, so that the places stay true."""
    changed: object = dict(entry)
    for secret, new in sorted(parts, key=lambda part: part[0].start, reverse=True):
        text = text_at(changed, secret.path)
        end = secret.start + len(secret.value)
        changed = _replaced(changed, secret.path, text[: secret.start] + new + text[end:])
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


def masked_text(text: str) -> str:
    """A text as it may be shown: what looks like a token, or is a password in a URL, is not."""
    return re.sub(r"(://[^/\s:@\"]*:)[^/\s@\"]+@", rf"\1{MASKED}@", _TOKEN.sub(MASKED, text))


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
            parts = list(_in_tree(value, name))
            if value in parts:
                self._shown[json.dumps(value, ensure_ascii=False)] = json.dumps(MASKED)
            words = [word for part in parts for word in (part, *part.split())]
            self._plain.update(word for word in words if len(word) >= _SHORTEST_PLAIN)

    def hidden(self, line: str) -> str:
        """The line as it may be shown."""
        line = _STRING.sub(lambda match: self._shown.get(match[0], match[0]), line)
        for value in sorted(self._plain, key=len, reverse=True):
            line = line.replace(value, MASKED)
        return masked_text(line)


def _literal(secret: Secret) -> Iterator[Secret]:
    """The secret where it is a literal, else the literals that stand in for its variables."""
    if not _REFERENCE.search(secret.value):
        yield secret
    for default in _DEFAULT.finditer(secret.value):
        yield replace(secret, start=secret.start + default.start(1), value=default[1])


def _in_tree(text: str, name: str) -> Iterator[str]:
    """Yield what is secret in a text of a foreign file, which has this name there."""
    if is_secret_name(name) or _HEADERS.search(name):
        yield text
    elif (option := _OPTION.fullmatch(text)) and is_secret_name(option[1]):
        yield option[3]
    elif "://" in text:
        yield from (secret.value for secret in _of_url((), text))


def _in_env(entry: Mapping[str, object]) -> Iterator[Secret]:
    for name, value in _strings(entry.get("env")):
        yield from _in_text(("env", name), value, name, is_secret=is_secret_name(name))


def _in_headers(entry: Mapping[str, object]) -> Iterator[Secret]:
    for name, value in _strings(entry.get("headers")):
        yield from _in_text(("headers", name), value, name, is_secret=_HEADERS.search(name) is not None)


def _in_oauth(entry: Mapping[str, object]) -> Iterator[Secret]:
    for name, value in _strings(entry.get("oauth")):
        if name == "client_secret":
            yield Secret(("oauth", name), 0, value, name)


def _in_args(entry: Mapping[str, object]) -> Iterator[Secret]:
    args = entry.get("args")
    before = ""
    for index, arg in enumerate(args if isinstance(args, list) else ()):
        text, path = str(arg), ("args", index)
        option = _OPTION.fullmatch(text)
        if option and (is_secret_name(option[1]) or _HEADERS.fullmatch(option[1])):
            yield from _in_text(path, text, option[1], is_secret=True, start=option.start(3))
        elif before.startswith("-") and "=" not in before and is_secret_name(before) and not text.startswith("-"):
            yield from _in_text(path, text, before, is_secret=True)
        else:
            yield from _in_text(path, text, "token", is_secret=False)
        before = text


def _in_url(entry: Mapping[str, object]) -> Iterator[Secret]:
    url = entry.get("url")
    if isinstance(url, str):
        yield from _of_url(("url",), url)


def _of_url(path: Keys, text: str) -> Iterator[Secret]:
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return
    if password:
        yield Secret(path, text.index(f":{password}@") + 1, password, "password")
    start = text.find("?") + 1
    for pair in parts.query.split("&") if start else ():
        name, _, value = pair.partition("=")
        if value and (_QUERY.search(unquote(name)) or _TOKEN.search(value)):
            yield Secret(path, start + len(name) + 1, value, unquote(name))
        start += len(pair) + 1


def _in_text(path: Keys, text: str, name: str, *, is_secret: bool, start: int = 0) -> Iterator[Secret]:
    if is_secret:
        scheme = _SCHEME.match(text, start)
        start = scheme.end() if scheme else start
        if text[start:].strip():
            yield Secret(path, start, text[start:], name)
        return
    found = list(_of_url(path, text)) if "://" in text else []
    yield from found or (Secret(path, token.start(), token[0], name) for token in _TOKEN.finditer(text))


def _strings(section: object) -> list[tuple[str, str]]:
    if not isinstance(section, Mapping):
        return []
    return [(str(name), value) for name, value in section.items() if isinstance(value, str)]


def _replaced(value: object, path: Keys, new: str) -> object:
    if not path:
        return new
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        return {key: _replaced(inner, rest, new) if key == head else inner for key, inner in value.items()}
    assert isinstance(value, list)
    return [_replaced(inner, rest, new) if index == head else inner for index, inner in enumerate(value)]
