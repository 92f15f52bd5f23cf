"""Writes the version of now into an entry: `npx -y NAME@VERSION`, `uvx NAME==VERSION`, or the digest of an image.

These are versions of packages; the pins of tool definitions are another thing.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynamic_mcp.features.provenance.examination import Examined
from dynamic_mcp.features.provenance.packages import ForeignCode, PackageUse
from dynamic_mcp.system.text import one_line


class NotPinnable(Exception):
    """Raised if an entry cannot get an exact version; the message says why."""


def pinned_entry(entry: Mapping[str, object], examined: Examined | None) -> dict[str, object]:
    """Return an entry with the exact version of its package, which it may have already. Raises NotPinnable."""
    if examined is None:
        raise NotPinnable("it runs no package of npm, PyPI or a registry of images")
    use, record = examined.use, examined.record
    if isinstance(use, ForeignCode):
        raise NotPinnable(f"it runs code from `{one_line(use.text, 150)}`, which is not in a registry")
    if use.is_fixed:
        return dict(entry)
    if record is None:
        raise NotPinnable(examined.reason)
    if not record.is_exact:
        raise NotPinnable(f"it asks for `{one_line(use.wanted, 100)}`: write the version that you want instead")
    version = record.digest if use.kind == "oci" else record.release.version if record.release else ""
    if not version:
        raise NotPinnable(f"its registry has no such {'package' if record.is_missing else 'version'}")
    return _with_word(entry, use, use.with_version(version))


def word_of(entry: Mapping[str, object], examined: Examined) -> str:
    """Return the word of an entry that names its package."""
    args, use = entry.get("args"), examined.use
    assert isinstance(args, list)
    assert isinstance(use, PackageUse)
    return one_line(str(args[use.index - 1]), 200)


def _with_word(entry: Mapping[str, object], use: PackageUse, text: str) -> dict[str, object]:
    args = entry.get("args")
    words = list(args) if isinstance(args, list) else []
    word = words[use.index - 1]
    assert isinstance(word, str)
    assert word.endswith(use.text)
    words[use.index - 1] = f"{word.removesuffix(use.text)}{text}"
    return {**entry, "args": words}
