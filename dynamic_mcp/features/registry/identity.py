"""Tells whether a server of the config is one of a registry: by the package that it starts, or the URL it reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from dynamic_mcp.features.registry.document import Document, Package, image_name
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.runtimes import image_of

_WORDS_WITHOUT_MEANING = re.compile(r"(^|[-_.])(mcp|server|servers|modelcontextprotocol)(?=[-_.]|$)")
_PINNED = re.compile(r"(@?[^@=]+?)(?:==|@)([0-9][A-Za-z0-9.+!_-]*)")
_TOP_LEVELS = ("api", "mcp", "www", "com", "net", "org", "io", "dev", "app", "ai", "co", "cloud")


class Target(Struct, frozen=True):
    """What an entry starts or reaches: `npm`, `pypi`, `oci` or `url`, its name, and the version if it is pinned."""

    kind: str
    name: str
    version: str = ""

    def words(self, server: str) -> list[str]:
        """Return what to search registries for, the most exact first; at last the server's name in the config."""
        return list(dict.fromkeys(each for each in (*self._own_words(), server) if len(each) > 1))

    def _own_words(self) -> list[str]:
        if self.kind == "url":
            labels = (urlsplit(self.name).hostname or "").split(".")
            return [each for each in labels if each not in _TOP_LEVELS][-1:]
        last = self.name.rpartition("/")[2].partition("[")[0]
        bare = _WORDS_WITHOUT_MEANING.sub("", last).strip("-_.")
        return [last, bare]


def find_option(target: Target, document: Document) -> Option | None:
    """Return the package or the remote of a document that is this target."""
    options: list[Option] = [*document.packages, *document.remotes]
    return next((each for each in options if _is_same(target, each)), None)


def has_version(target: Target, option: Option) -> bool:
    """Tell whether an option is of the version that the target has pinned."""
    if not isinstance(option, Package):
        return False
    version = image_of(option).rpartition(":")[2] if option.kind == "oci" else option.version
    return version == target.version != ""


def find_image(entry: Mapping[str, object]) -> Iterator[Target]:
    """Yield what may be the image of an entry that starts a container."""
    args = entry.get("args")
    program = re.split(r"[/\\]", str(entry.get("command", "")))[-1].removesuffix(".exe")
    if program not in ("docker", "podman") or not isinstance(args, list):
        return
    for word in args:
        if isinstance(word, str) and re.match(r"[a-z0-9][^=]*/", word):
            name = image_name(word)
            tag = word.partition("@")[0].removeprefix(name).removeprefix(":")
            yield Target("oci", name, tag)


def align(mine: Mapping[str, object], base: object, option: Option) -> Mapping[str, object]:
    """Return an entry that names its package as `base` does, if of the same version: `name@1.0` is `name==1.0`."""
    args, made = mine.get("args"), base.get("args") if isinstance(base, Mapping) else None
    if not isinstance(args, list) or not isinstance(made, list) or not isinstance(option, Package):
        return mine
    by_meaning = {_meaning(option.kind, word): word for word in made if _meaning(option.kind, word)[1]}
    return {**mine, "args": [by_meaning.get(_meaning(option.kind, word), word) for word in args]}


def _meaning(kind: str, word: object) -> tuple[str, str]:
    """Return the package and the version that a word names; the latter is empty if it names none."""
    match = _PINNED.fullmatch(word) if isinstance(word, str) and kind in ("npm", "pypi") else None
    return (_fold(kind, match[1]), match[2]) if match is not None else ("", "")


def _is_same(target: Target, option: Option) -> bool:
    if not isinstance(option, Package):
        return target.kind == "url" and _canonical(option.url) == _canonical(target.name)
    if option.kind != target.kind:
        return False
    if option.kind == "oci":
        return image_name(image_of(option)) == target.name
    return _fold(option.kind, option.identifier) == _fold(target.kind, target.name)


def _fold(kind: str, name: str) -> str:
    """Return the name of a package as its registry compares it (PyPI: the packaging specifications, "Names")."""
    return re.sub(r"[-_.]+", "-", name).lower() if kind == "pypi" else name


def _canonical(url: str) -> str:
    return url.rstrip("/").casefold()
