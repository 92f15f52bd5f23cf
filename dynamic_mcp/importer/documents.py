"""Foreign files as texts that one value is put into or taken out of: JSON with comments, TOML, YAML.

What is not changed keeps its bytes, in its encoding. A text that cannot be parsed is refused.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path

from dynamic_mcp.config import edit, jsonc
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.importer.files import FileError
from dynamic_mcp.importer.tree import NOTHING, at, is_like, with_value, without

_UTF_16 = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True)
class Language:
    """How one kind of file is read and changed; an empty text is `empty`."""

    name: str
    parse: Callable[[str], object]
    put: Callable[[str, Keys, object], str]
    drop: Callable[[str, Keys], str]
    empty: str = ""


@dataclass(frozen=True)
class Document:
    """One file's text. Each change returns another document; none changes a file."""

    file: Path
    language: Language
    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def get(self, path: Keys) -> object:
        """Return the value at a path, NOTHING where there is none. Raises FileError."""
        return at(self._parsed(self.text), path)

    def put(self, path: Keys, value: object, *, order: tuple[str, ...] = ()) -> Document:
        """Put a value at a path, in JSON among its neighbours in this order. Raises FileError."""
        if order and self.language.put is edit.put:
            return self._changed(partial(edit.put, order=order), path, value)
        return self._changed(self.language.put, path, value)

    def drop(self, path: Keys) -> Document:
        """Take the value at a path out, if there is one. Raises FileError."""
        if self.get(path) is NOTHING:
            return self
        return self._changed(self.language.drop, path)

    def data(self) -> bytes:
        """Return the bytes of the file."""
        return self.mark + self.text.encode(self.encoding)

    def _changed(self, change: Callable[..., str], path: Keys, *value: object) -> Document:
        try:
            text = change(self.text if self.text.strip() else self.language.empty, path, *value)
        except (ValueError, KeyError, TypeError) as exc:
            raise FileError(self.file, _reason(exc, self.language, path), hint=_AS_IT_WAS) from exc
        after = Document(self.file, self.language, text, self.encoding, self.mark)
        before = self.get(())
        expected = with_value(before, path, value[0]) if value else without(before, path)
        if not is_like(after.get(()), expected):
            raise FileError(self.file, f"`{shown(path)}` cannot be changed without changing more", hint=_AS_IT_WAS)
        return after

    def _parsed(self, text: str) -> object:
        if not text.strip():
            return {}
        try:
            return self.language.parse(text)
        except ValueError as exc:
            raise FileError(self.file, _reason(exc, self.language, ()), hint=_AS_IT_WAS) from exc


_AS_IT_WAS = "the file is as it was; put it right, or make the change by hand"


def document(file: Path, data: bytes | None) -> Document:
    """Return the document in some bytes; an empty one where there are none. Raises FileError."""
    data = data or b""
    language = _language(file)
    for mark, encoding in (*_UTF_16, (codecs.BOM_UTF8, "utf-8"), (b"", "utf-8")):
        if data.startswith(mark):
            try:
                made = Document(file, language, data[len(mark) :].decode(encoding), encoding, mark)
            except UnicodeDecodeError as exc:
                raise FileError(file, f"byte {exc.start + 1} is not {encoding.upper()}", hint=_AS_IT_WAS) from exc
            made.get(())
            return made
    raise AssertionError


def _language(file: Path) -> Language:
    match file.suffix.lower():
        case ".toml":
            from dynamic_mcp.importer import toml_edit

            return Language("TOML", toml_edit.parse, toml_edit.put, toml_edit.drop)
        case ".yaml" | ".yml":
            from dynamic_mcp.importer import yaml_edit

            return Language("YAML", yaml_edit.parse, yaml_edit.put, yaml_edit.drop)
    return Language("JSON", jsonc.loads, edit.put, edit.drop, "{}\n")


def _reason(exc: Exception, language: Language, path: Keys) -> str:
    match exc:
        case JSONDecodeError():
            return f"line {exc.lineno}, column {exc.colno}: is not JSON: {exc.msg[:1].lower()}{exc.msg[1:]}"
        case jsonc.DuplicateKeyError():
            return f"`{shown(exc.paths[0])}` is there more than once"
        case edit.NoPlaceError():
            return str(exc)
    where = f"`{shown(path)}` cannot be changed: " if path else f"is not {language.name}: "
    return where + (str(exc).splitlines() or [""])[0]
