"""An input schema as its server wrote it: the parts of it that are about the whole arguments, and what they say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from msgspec import Raw

from dynamic_mcp.mcp import wire
from dynamic_mcp.tools.schema import MAX_SCHEMA_BYTES, InputSchema

MAX_DEPTH = 30
_MAX_PARTS = 1000
_MAX_PATTERN = 1000
_LISTS_OF_PARTS = ("allOf", "anyOf", "oneOf")
_PARTS = ("not", "if", "then", "else")
_DEFINITIONS = ("$defs", "definitions")
# With these, what a reference means depends on more than its target.
_SCOPES = frozenset(("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$dynamicRef", "$recursiveRef"))
# Keywords about the arguments as a whole, which cannot be said of only some of them.
_WHOLE = ("const", "enum", "unevaluatedProperties")
_NUMBERS = ("minProperties", "maxProperties")


class CannotShow(ValueError):
    """A tool that cannot be shown as the config wants it; the text says why."""


def split(schema: Raw) -> dict[str, Raw]:
    """Return the members of an object in a schema. Raises CannotShow."""
    try:
        return wire.members(schema)
    except wire.Malformed:
        raise CannotShow("its schema is malformed") from None


class SchemaDocument:
    """The whole input schema of a tool. Its methods raise CannotShow."""

    def __init__(self, raw: Raw) -> None:
        if len(raw) > MAX_SCHEMA_BYTES:
            raise CannotShow("its schema is too long")
        self.raw = raw if bytes(raw).lstrip()[:1] == b"{" else wire.EMPTY_OBJECT
        self._root = split(self.raw)
        draft = wire.text(self._root.get("$schema")) or ""
        is_old = any(each in draft for each in ("draft-03", "draft-04", "draft-06", "draft-07"))
        self.ignores_siblings = is_old  # of a `$ref`
        self.has_conditions = not is_old or "draft-07" in draft
        # many validators know the old keyword in all drafts
        newer = () if is_old else ("dependentRequired", "dependentSchemas")
        self.dependency_keywords = ("dependencies", *newer)

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of all arguments that are described somewhere."""
        return frozenset(name for part in self._parts() for name in split(part.get("properties", wire.EMPTY_OBJECT)))

    def check(self, *, has_values: bool, has_changes: bool, renamed: Collection[str]) -> None:
        """Refuse what cannot be said of some arguments only."""
        if not has_changes:
            return
        if any(not _SCOPES.isdisjoint(each) or (at and isinstance(each.get("$id"), str)) for at, each in self._nodes):
            raise CannotShow("its schema has references that depend on where they are")
        for part in self._parts():
            unusable = [key for key in _WHOLE if key in part and bytes(part[key]) != b"true"]
            unusable += [key for key in _NUMBERS if key in part and has_values]
            unusable += ["propertyNames"] if "propertyNames" in part and (has_values or renamed) else []
            if unusable:
                raise CannotShow(f"its schema has `{unusable[0]}`")
            for name in renamed:
                if self._matching(part, name):
                    raise CannotShow(f"its schema has a pattern for names that matches `{name}`")

    def resolve(self, reference: str) -> Raw | None:
        """Return what a reference within the document leads to (RFC 6901), or None."""
        if reference == "#":
            return self.raw
        if not reference.startswith("#/"):
            return None
        found = self.raw
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if bytes(found).lstrip()[:1] == b"[":
                items = wire.elements(found)
                found = items[int(name)] if name.isdecimal() and int(name) < len(items) else wire.ABSENT
            else:
                found = wire.member(found, name)
        return found if len(found) else None

    def parts_for(self, members: Mapping[str, Raw], name: str) -> Iterator[Raw]:
        """Yield the schemas that a part has for an argument."""
        own = split(members.get("properties", wire.EMPTY_OBJECT)).get(name)
        matching = self._matching(members, name)
        if own is not None:
            yield own
        yield from matching
        if own is None and not matching and "additionalProperties" in members:
            yield members["additionalProperties"]

    def accepts(self, part: Raw, value: Raw) -> bool:
        """Tell whether a value fits a schema of this document; yes, where that cannot be told."""
        key = bytes(part), bytes(value)
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._judge(part, value)
        return known

    def finish(self, shown: Mapping[str, object]) -> Raw:
        """Return a shown schema as JSON, without definitions that nothing refers to any more."""
        out = dict(shown)
        names = {key: split(self._root[key]) for key in _DEFINITIONS if key in self._root}
        body = {key: value for key, value in out.items() if key not in names}
        used = self._used_references(wire.encode(body))
        for key, definitions in names.items():
            kept = {name: each for name, each in definitions.items() if any(_leads(key, name, ref) for ref in used)}
            out.pop(key, None)
            if kept:
                out[key] = kept
        done = Raw(wire.encode(out))
        self._check_references(done, used)
        return done

    # --- parts -------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[dict[str, Raw]]:
        """Yield the members of each part that is about the whole arguments."""
        todo: list[tuple[Raw, tuple[str, ...], int]] = [(self.raw, (), 0)]
        for _ in range(_MAX_PARTS):
            if not todo:
                return
            schema, refs, depth = todo.pop()
            if bytes(schema) in (b"true", b"false"):
                continue
            if depth > MAX_DEPTH:
                break
            members = split(schema)
            yield members
            todo += ((each, refs, depth + 1) for each in self._inner(members))
            name = wire.text(members.get("$ref"))
            target = None if name is None or name in refs else self.resolve(name)
            if name is not None and target is not None:
                todo.append((target, (*refs, name), depth + 1))
        raise CannotShow("its schema has too many parts")

    def _inner(self, members: Mapping[str, Raw]) -> Iterator[Raw]:
        for key in _LISTS_OF_PARTS:
            if key in members:
                yield from _elements(members[key])
        yield from (members[key] for key in _PARTS if key in members)
        for key in self.dependency_keywords:
            for each in split(members.get(key, wire.EMPTY_OBJECT)).values():
                if bytes(each).lstrip()[:1] != b"[":
                    yield each

    def _matching(self, members: Mapping[str, Raw], name: str) -> list[Raw]:
        patterns = members.get("patternProperties")
        if patterns is None:
            return []
        return [each for pattern, each in split(patterns).items() if _matches(pattern, name)]

    # --- values ------------------------------------------------------------------------------------------

    @cached_property
    def _verdicts(self) -> dict[tuple[bytes, bytes], bool]:
        return {}

    def _judge(self, part: Raw, value: Raw) -> bool:
        if bytes(part) in (b"true", b"false"):
            return bytes(part) == b"true"
        schema: dict[str, object] = {"type": "object", "properties": {"value": part}}
        if "$schema" in self._root:
            schema["$schema"] = self._root["$schema"]
        if b"$ref" in bytes(part):
            try:
                schema["properties"] = {"value": _move_references(wire.value(part))}
                schema["$defs"] = {"document": _move_references(wire.value(self.raw))}
            except RecursionError:
                return True
        return InputSchema(Raw(wire.encode(schema))).accepts(Raw(wire.encode({"value": value})))

    # --- references --------------------------------------------------------------------------------------

    @cached_property
    def _nodes(self) -> list[tuple[int, dict[str, object]]]:
        return [*enumerate(_objects(wire.value(self.raw)))]

    def _used_references(self, body: bytes) -> set[str]:
        """Return all references of a body, and those of what they lead to."""
        used: set[str] = set()
        todo = [Raw(body)]
        while todo:
            for each in _objects(wire.value(todo.pop())):
                reference = each.get("$ref")
                if isinstance(reference, str) and reference not in used:
                    used.add(reference)
                    target = self.resolve(reference)
                    todo += [] if target is None else [target]
        return used

    def _check_references(self, done: Raw, used: Collection[str]) -> None:
        shown = SchemaDocument(done)
        for reference in used:
            before, after = self.resolve(reference), shown.resolve(reference)
            if before is not None and (after is None or wire.value(before) != wire.value(after)):
                raise CannotShow(f"its schema refers to `{reference[:100]}`, which would be another one")


def _leads(key: str, name: str, reference: str) -> bool:
    place = f"#/{key}/" + name.replace("~", "~0").replace("/", "~1")
    return reference == place or reference.startswith(f"{place}/") or place.startswith(f"{reference}/")


def _matches(pattern: str, name: str) -> bool:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        if len(pattern) <= _MAX_PATTERN:
            return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        pass
    raise CannotShow("its schema has a pattern for names that cannot be understood")


def _elements(elements: Raw) -> list[Raw]:
    try:
        return wire.elements(elements)
    except wire.Malformed:
        raise CannotShow("its schema is malformed") from None


def _objects(value: object) -> Iterator[dict[str, object]]:
    """Yield every object in JSON, the outermost first."""
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def _move_references(value: object) -> object:
    """Return a schema whose references lead to a document that is a definition now."""
    if isinstance(value, list):
        return [_move_references(each) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: _move_references(each) for key, each in value.items() if key != "$id"}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/document{reference[1:]}"
    return moved
