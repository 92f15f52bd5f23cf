"""Matches servers of the config with servers of a registry: by the package that they start, or their URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from dynamic_mcp.features.registry.document import Package, ServerDocument, image_name
from dynamic_mcp.features.registry.options import Option
from dynamic_mcp.features.registry.runtimes import image_of

_WORDS_WITHOUT_MEANING = re.compile(r"(^|[-_.])(mcp|server|servers|modelcontextprotocol)(?=[-_.]|$)")
_PINNED = re.compile(r"(@?[^@=]+?)(==|@)([0-9][A-Za-z0-9.+!_-]*)")
_TOP_LEVELS = ("api", "mcp", "www", "com", "net", "org", "io", "dev", "app", "ai", "co", "cloud")


class EntryTarget(Struct, frozen=True):
    """The target of an entry: `npm`, `pypi`, `oci` or `url`, its name, and the version if it is pinned."""

    kind: str
    name: str
    version: str = ""

    def words(self, server: str) -> list[str]:
        """Return search words for registries, the most exact first; the server's name in the config comes last."""
        return list(dict.fromkeys(each for each in (*self._own_words(), server) if len(each) > 1))

    def _own_words(self) -> list[str]:
        if self.kind == "url":
            labels = (urlsplit(self.name).hostname or "").split(".")
            return [each for each in labels if each not in _TOP_LEVELS][-1:]
        last = self.name.rpartition("/")[2].partition("[")[0]
        bare = _WORDS_WITHOUT_MEANING.sub("", last).strip("-_.")
        return [last, bare]


def find_option(target: EntryTarget, document: ServerDocument) -> Option | None:
    """Return the package or the remote of a document that matches this target."""
    options: list[Option] = [*document.packages, *document.remotes]
    return next((each for each in options if _is_same(target, each)), None)


def has_version(target: EntryTarget, option: Option) -> bool:
    """Return whether an option has the version that the target has pinned."""
    if not isinstance(option, Package):
        return False
    version = image_of(option).rpartition(":")[2] if option.kind == "oci" else option.version
    return version == target.version != ""


def find_image(entry: Mapping[str, object]) -> Iterator[EntryTarget]:
    """Yield the possible images of an entry that starts a container."""
    args = entry.get("args")
    program = re.split(r"[/\\]", str(entry.get("command", "")))[-1].removesuffix(".exe")
    if program not in ("docker", "podman") or not isinstance(args, list):
        return
    for word in args:
        if isinstance(word, str) and re.match(r"[a-z0-9][^=]*/", word):
            name = image_name(word)
            tag = word.partition("@")[0].removeprefix(name).removeprefix(":")
            yield EntryTarget("oci", name, tag)


def with_version(entry: Mapping[str, object], option: Option) -> dict[str, object]:
    """Return an entry with the version of this package, if its version is pinned."""
    args = entry.get("args")
    if not isinstance(args, list) or not isinstance(option, Package):
        return dict(entry)
    return {**entry, "args": [_with_version(word, option) for word in args]}


def _with_version(word: object, package: Package) -> object:
    if not isinstance(word, str):
        return word
    if package.kind == "oci":
        image = image_of(package)
        return image if image_name(word) == image_name(image) != word else word
    match = _PINNED.fullmatch(word) if package.kind in ("npm", "pypi") else None
    if (
        match is None
        or not package.version
        or _fold(package.kind, match[1]) != _fold(package.kind, package.identifier)
    ):
        return word
    return f"{match[1]}{match[2]}{package.version}"


def _is_same(target: EntryTarget, option: Option) -> bool:
    if not isinstance(option, Package):
        return target.kind == "url" and _canonical(option.url) == _canonical(target.name)
    if option.kind != target.kind:
        return False
    if option.kind == "oci":
        return image_name(image_of(option)) == target.name
    return _fold(option.kind, option.identifier) == _fold(target.kind, target.name)


def _fold(kind: str, name: str) -> str:
    """Return a package name in its registry's normal form (PyPI: the packaging specifications, "Names")."""
    return re.sub(r"[-_.]+", "-", name).lower() if kind == "pypi" else name


def _canonical(url: str) -> str:
    return url.rstrip("/").casefold()
