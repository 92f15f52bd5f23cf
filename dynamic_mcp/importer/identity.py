"""When two entries are one server: by what they run or reach, never by their names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

_NPM = {("npx",), ("bunx",), ("pnpx",), ("npm", "exec"), ("npm", "x"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x")}
_PYPI = {("uvx",), ("uv", "tool", "run"), ("pipx", "run")}
_NPM_PACKAGE = re.compile(r"((?:@[^/@]+/)?[^@]+)(?:@.*)?")
_PYPI_PACKAGE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:[@=<>~!].*)?")
_SILENT = frozenset({"-y", "--yes", "-q", "--quiet", "--no", "--no-install", "--"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Identity:
    """`key` must be equal; `path` only where both have one, as a plain name may be anywhere."""

    key: tuple[str, ...]
    path: str = ""

    def is_same(self, other: Identity) -> bool:
        """Tell whether both run or reach the same."""
        return self.key == other.key and (not self.path or not other.path or self.path == other.path)


def identity(entry: Mapping[str, object], home: str) -> Identity:
    """What an entry of our config runs or reaches: `npx -y pkg@latest` is `npx pkg`, and `cmd /c npx` as well."""
    url = entry.get("url")
    if isinstance(url, str):
        return Identity(("url", _canonical(url)))
    command = str(entry.get("command", ""))
    args = entry.get("args")
    words = [_at_home(str(arg), home) for arg in args] if isinstance(args, list) else []
    program = _name(command)
    if program == "cmd" and len(words) > 1 and words[0].lower() == "/c":
        command, words = words[1], words[2:]
        program = _name(command)
    package = _package([program, *words])
    if package and package[:2] == ("npm", "mcp-remote") and package[2:] and "://" in package[2]:
        return Identity(("url", _canonical(package[2])))
    cwd = entry.get("cwd")
    place = posixpath.normpath(_at_home(cwd, home)) if isinstance(cwd, str) else ""
    if package:
        return Identity((*package, place))
    path = _at_home(command, home) if re.search(r"[/\\]", command) else ""
    return Identity(("program", program, *words, place), path)


def package_of(entry: Mapping[str, object]) -> str:
    """The npm or PyPI package that an entry runs, without its version; empty when it runs none."""
    key = identity(entry, "").key
    return key[1] if key[0] in ("npm", "pypi") else ""


def _name(command: str) -> str:
    name = re.split(r"[/\\]", command)[-1]
    return re.sub(r"\.(exe|cmd|bat)$", "", name, flags=re.IGNORECASE).lower()


def _package(words: Sequence[str]) -> tuple[str, ...]:
    for kind, launchers, form in (("npm", _NPM, _NPM_PACKAGE), ("pypi", _PYPI, _PYPI_PACKAGE)):
        for launcher in launchers:
            if tuple(words[: len(launcher)]) == launcher:
                rest = list(words[len(launcher) :])
                while rest and rest[0] in _SILENT:
                    rest.pop(0)
                match = form.fullmatch(rest[0]) if rest and not rest[0].startswith("-") else None
                return (kind, match[1], *rest[1:]) if match else ()
    return ()


def _canonical(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = (parts.hostname or "") + (f":{port}" if port and port != _PORTS.get(parts.scheme.lower()) else "")
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}{query}"


def _at_home(text: str, home: str) -> str:
    return re.sub(r"^(~(?=[/\\]|$)|\$\{HOME\}|\$\{USERPROFILE\})", lambda _: home, text)
