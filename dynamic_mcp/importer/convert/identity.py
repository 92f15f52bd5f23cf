"""Decides whether two entries are the same server: by program or URL, and their environment, never by name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from dynamic_mcp.config.substitute import expand

# The words that run a package of npm or PyPI, which is named next.
NPM_LAUNCHERS = {
    ("npx",),
    ("bunx",),
    ("pnpx",),
    ("npm", "exec"),
    ("npm", "x"),
    ("pnpm", "dlx"),
    ("yarn", "dlx"),
    ("bun", "x"),
}
PYPI_LAUNCHERS = {("uvx",), ("uv", "tool", "run"), ("pipx", "run")}
_NPM_PACKAGE = re.compile(r"((?:@[^/@]+/)?[^@]+)(?:@.*)?")
_PYPI_PACKAGE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:[@=<>~!].*)?")
_SILENT = frozenset({"-y", "--yes", "-q", "--quiet", "--no", "--no-install", "--"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Identity:
    """`key` must be equal; `path` only if both have one, since a plain name may resolve to any path."""

    key: tuple[str, ...]
    path: str = ""

    def is_same(self, other: Identity) -> bool:
        return self.key == other.key and (not self.path or not other.path or self.path == other.path)


def identify(entry: Mapping[str, object], home: str) -> Identity:
    """Return the identity of an entry: `npx -y pkg@latest` is `npx pkg`, and so is `cmd /c npx pkg`."""
    document = entry.get("openapi")
    if isinstance(document, str):
        return Identity(("openapi", document, str(entry.get("url", ""))))
    url = entry.get("url")
    if isinstance(url, str):
        return Identity(("url", _canonicalize(url)))
    cli = entry.get("cli")
    if isinstance(cli, Mapping):
        return Identity(("cli", str(cli.get("use")), str(cli.get("command", ""))))
    skills = entry.get("skills")
    if isinstance(skills, list):
        return Identity(("skills", *map(str, skills)))
    command, words = _command_words(entry, home)
    program = program_name(command)
    package = _parse_package([program, *words])
    if _is_bridge(package):
        return Identity(("url", _canonicalize(package[2])))
    cwd = entry.get("cwd")
    place = posixpath.normpath(_expand_home(cwd, home)) if isinstance(cwd, str) else ""
    if package:
        return Identity((*package, place))
    path = _expand_home(command, home) if re.search(r"[/\\]", command) else ""
    return Identity(("program", program, *words, place), path)


def package_of(entry: Mapping[str, object]) -> str:
    """Return the npm or PyPI package that an entry runs, without its version, or an empty text."""
    key = identify(entry, "").key
    return key[1] if key[0] in ("npm", "pypi") else ""


def pinned_version(entry: Mapping[str, object], package: str) -> str:
    """Return the exact version of a package that an entry runs, or an empty text."""
    words = _command_words(entry, "")[1]
    form = re.compile(rf"{re.escape(package)}(?:\[[^\]]*\])?(?:@|==)([0-9][A-Za-z0-9.+!_-]*)")
    return next((match[1] for word in words if (match := form.fullmatch(word))), "")


def program_name(command: str) -> str:
    """Return the name of a program without its folder and the ending that Windows gives it."""
    name = re.split(r"[/\\]", command)[-1]
    return re.sub(r"\.(exe|cmd|bat)$", "", name, flags=re.IGNORECASE).lower()


def collect_conditions(
    entry: Mapping[str, object], home: str, values: Mapping[str, str]
) -> frozenset[tuple[str, str, str]]:
    """Return the variables, env files and headers of an entry, with known references filled in."""
    found = _iter_conditions(entry, home)
    return frozenset((kind, name, _resolve(text, home, values)) for kind, name, text in found)


def _iter_conditions(entry: Mapping[str, object], home: str) -> Iterator[tuple[str, str, str]]:
    env = {name: str(value) for name, value in _as_object(entry.get("env")).items()}
    command, words = _command_words(entry, home)
    package = _parse_package([program_name(command), *words])
    if "url" not in entry and _is_bridge(package):
        for option, header in pairwise(package[3:]):
            if option == "--header":
                name, _, value = header.partition(":")
                yield "header", name.strip().lower(), expand(value.strip().replace("$${", "${"), env).text
        return
    yield from (("env", name, value) for name, value in env.items())
    files = entry.get("env_file") or []
    yield from (
        ("env_file", str(i), str(file)) for i, file in enumerate(files if isinstance(files, list) else [files])
    )
    headers = _as_object(entry.get("headers"))
    yield from (("header", name.lower(), str(value)) for name, value in headers.items())


def _resolve(text: str, home: str, values: Mapping[str, str]) -> str:
    # an empty default only shows how the tool treats an unset variable; the server is the same
    return expand(_expand_home(re.sub(r"(?<!\$)(\$\{\w+):-\}", r"\1}", text), home), values).text


def _as_object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _command_words(entry: Mapping[str, object], home: str) -> tuple[str, list[str]]:
    """Return the command and its arguments, without `cmd /c`."""
    command = str(entry.get("command", ""))
    args = entry.get("args")
    words = [_expand_home(str(arg), home) for arg in args] if isinstance(args, list) else []
    if program_name(command) == "cmd" and len(words) > 1 and words[0].lower() == "/c":
        return words[1], words[2:]
    return command, words


def _is_bridge(package: tuple[str, ...]) -> bool:
    """Return whether a package reaches a URL over HTTP, as `url` does."""
    return package[:2] == ("npm", "mcp-remote") and len(package) > 2 and "://" in package[2]


def _parse_package(words: Sequence[str]) -> tuple[str, ...]:
    for kind, launchers, form in (("npm", NPM_LAUNCHERS, _NPM_PACKAGE), ("pypi", PYPI_LAUNCHERS, _PYPI_PACKAGE)):
        for launcher in launchers:
            if tuple(words[: len(launcher)]) == launcher:
                rest = list(words[len(launcher) :])
                while rest and rest[0] in _SILENT:
                    rest.pop(0)
                match = form.fullmatch(rest[0]) if rest and not rest[0].startswith("-") else None
                return (kind, match[1], *rest[1:]) if match else ()
    return ()


def _canonicalize(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = (parts.hostname or "") + (f":{port}" if port and port != _PORTS.get(parts.scheme.lower()) else "")
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme.lower()}://{host}{parts.path.rstrip('/')}{query}"


def _expand_home(text: str, home: str) -> str:
    return re.sub(r"^(~(?=[/\\]|$)|\$\{HOME\}|\$\{USERPROFILE\})", lambda _: home, text)
