"""Foreign files as texts, edited one value at a time: JSON with comments, TOML, YAML.

Unchanged parts keep their bytes and their encoding. A text that cannot be parsed is refused.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path

from dynamic_mcp.config import edit, jsonc
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.importer.formats.files import FileError
from dynamic_mcp.importer.formats.tree import NOTHING, at, is_like, with_value, without

_UTF_16 = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True)
class Language:
    """The parser and editor of one kind of file; `empty` is the initial text of a new file."""

    name: str
    parse: Callable[[str], object]
    put: Callable[[str, Keys, object], str]
    drop: Callable[[str, Keys], str]
    empty: str = ""


@dataclass(frozen=True)
class TextDocument:
    """One file's text. Each change returns another document; none writes a file."""

    file: Path
    language: Language
    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    def get(self, path: Keys) -> object:
        """Return the value at a path, or NOTHING. Raises FileError."""
        return at(self._parse(self.text), path)

    def put(self, path: Keys, value: object) -> TextDocument:
        """Set the value at a path. Raises FileError."""
        return self._apply(self.language.put, path, value)

    def drop(self, path: Keys) -> TextDocument:
        """Remove the value at a path, if there is one. Raises FileError."""
        if self.get(path) is NOTHING:
            return self
        return self._apply(self.language.drop, path)

    def encode(self) -> bytes:
        return self.bom + self.text.encode(self.encoding)

    def _apply(self, change: Callable[..., str], path: Keys, *value: object) -> TextDocument:
        try:
            text = change(self.text if self.text.strip() else self.language.empty, path, *value)
        except (ValueError, KeyError, TypeError) as exc:
            raise FileError(self.file, _explain(exc, self.language, path), hint=_UNCHANGED_HINT) from exc
        after = TextDocument(self.file, self.language, text, self.encoding, self.bom)
        before = self.get(())
        expected = with_value(before, path, value[0]) if value else without(before, path)
        if not is_like(after.get(()), expected):
            raise FileError(
                self.file, f"`{shown(path)}` cannot be changed without affecting other values", hint=_UNCHANGED_HINT
            )
        return after

    def _parse(self, text: str) -> object:
        if not text.strip():
            return {}
        try:
            return self.language.parse(text)
        except ValueError as exc:
            raise FileError(self.file, _explain(exc, self.language, ()), hint=_UNCHANGED_HINT) from exc


_UNCHANGED_HINT = "the file was not changed; fix it, or make the change by hand"


def parse_document(file: Path, data: bytes | None) -> TextDocument:
    """Parse the bytes of a file; None is an empty document. Raises FileError."""
    data = data or b""
    language = _language_of(file)
    for bom, encoding in (*_UTF_16, (codecs.BOM_UTF8, "utf-8"), (b"", "utf-8")):
        if data.startswith(bom):
            try:
                parsed = TextDocument(file, language, data[len(bom) :].decode(encoding), encoding, bom)
            except UnicodeDecodeError as exc:
                raise FileError(
                    file, f"byte {exc.start + 1} is not {encoding.upper()}", hint=_UNCHANGED_HINT
                ) from exc
            parsed.get(())
            return parsed
    raise AssertionError


def _language_of(file: Path) -> Language:
    match file.suffix.lower():
        case ".toml":
            from dynamic_mcp.importer.formats import toml_edit

            return Language("TOML", toml_edit.parse, toml_edit.put, toml_edit.drop)
        case ".yaml" | ".yml":
            from dynamic_mcp.importer.formats import yaml_edit

            return Language("YAML", yaml_edit.parse, yaml_edit.put, yaml_edit.drop)
    return Language("JSON", jsonc.loads, edit.put, edit.drop, "{}\n")


def _explain(exc: Exception, language: Language, path: Keys) -> str:
    match exc:
        case JSONDecodeError():
            return f"line {exc.lineno}, column {exc.colno}: is not JSON: {exc.msg[:1].lower()}{exc.msg[1:]}"
        case jsonc.DuplicateKeyError():
            return f"`{shown(exc.paths[0])}` is defined more than once"
        case edit.NoPlaceError():
            return str(exc)
    where = f"`{shown(path)}` cannot be changed: " if path else f"is not {language.name}: "
    return where + (str(exc).splitlines() or [""])[0]
