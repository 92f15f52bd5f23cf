"""Schemas of OpenAPI documents as JSON Schema 2020-12, for the arguments of a tool.

What a schema does not name cannot be sent: an object with `properties` is closed, unless the document says which
other members it may have. References become `$defs`, so that circles stay finite. Annotations that describe no
value, and keywords whose value is of a wrong type, are left out, and members that only the service sets (`readOnly`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynamic_mcp.openapi.document import BadReference, Document, Json, as_object, pointer_tokens

Schema = Json | bool

MAX_WRITTEN = 300_000
_MAX_NESTING = 60
_MAX_DEFINITIONS = 2000
_MAX_ALIASES = 50
TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
BASE64 = "The content as base64."
_COMBINING = ("allOf", "anyOf", "oneOf")
_ONLY_ANNOTATIONS = frozenset(("default", "deprecated", "description", "nullable", "title", "writeOnly", "readOnly"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _is_type(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_texts(value) and all(each in TYPES for each in value)
    return value in TYPES if isinstance(value, str) else False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# The keywords that are copied, each with the test of its value.
_PLAIN: Mapping[str, Callable[[object], bool]] = {
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "const": lambda value: True,
    "default": lambda value: True,
    **dict.fromkeys(("description", "pattern", "format", "contentEncoding", "contentMediaType"), _is_text),
    "multipleOf": lambda value: _is_number(value) and float(str(value)) > 0,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _is_count,
    ),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    "required": _are_texts,
    **dict.fromkeys(("uniqueItems", "deprecated"), lambda value: isinstance(value, bool)),
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_are_texts, value.values())),
}
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_ONE_MORE = ("unevaluatedProperties", "unevaluatedItems")
_NAMED = ("patternProperties", "dependentSchemas")
# Keywords whose meaning depends on where a schema is, which changes here.
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef", "$id")


class SchemaBudget:
    """How many schemas may still be written: a small document can refer to the same ones again and again."""

    def __init__(self, left: int = MAX_WRITTEN) -> None:
        self.left = left


class SchemaWriter:
    """Writes the schemas of one tool, which share their `$defs`."""

    def __init__(self, document: Document, budget: SchemaBudget | None = None) -> None:
        self.definitions: dict[str, Schema] = {}
        self._document = document
        self._budget = budget or SchemaBudget()
        self._names: dict[tuple[str, bool], str] = {}

    def write(self, schema: object, *, depth: int = 0, is_part: bool = False) -> Schema:
        """Return a schema. Raises BadReference, also for what cannot be written.

        `is_part`: it is one of several that describe the same object, so that it cannot close it.
        """
        if depth > _MAX_NESTING:
            raise BadReference("its schemas are nested too deeply")
        if self._budget.left <= 0:
            raise BadReference(f"the tools of this document need more than {MAX_WRITTEN} schemas")
        self._budget.left -= 1
        if isinstance(schema, bool):
            return schema
        source = as_object(schema)
        for keyword in _UNSUPPORTED:
            if keyword in source:
                raise BadReference(f"its schema uses `{keyword}`, which is not supported")
        if isinstance(reference := source.get("$ref"), str):
            return self._write_reference(source, reference, depth=depth, is_part=is_part)
        parts = source.get("allOf")
        if isinstance(parts, list) and len(parts) == 1 and source.keys() <= _ONLY_ANNOTATIONS | {"allOf"}:
            alone = self.write(parts[0], depth=depth + 1, is_part=is_part)
            if isinstance(alone, dict):
                return self._accept_null(source, {**alone, **self._copy_plain(source)})
        return self._accept_null(source, self._write_keywords(source, depth=depth, is_part=is_part))

    def _write_reference(self, source: Json, reference: str, *, depth: int, is_part: bool) -> Schema:
        others = {key: value for key, value in source.items() if key != "$ref"}
        if not self._document.is_old and others.keys() & {"properties", *_COMBINING}:
            parts = others.get("allOf")
            both = [{"$ref": reference}, *(parts if isinstance(parts, list) else [])]
            return self.write({**others, "allOf": both}, depth=depth + 1, is_part=is_part)
        target = self._follow_aliases(reference)
        if target is None:
            return {}
        name = self._names.get((target, is_part))
        if name is None:
            name = self._choose_name(target)
            self._names[target, is_part] = name
            self.definitions[name] = {}
            self.definitions[name] = self.write(self._document.find(target), depth=depth + 1, is_part=is_part)
        found: Json = {"$ref": f"#/$defs/{name}"}
        if self._document.is_old:  # its references have no siblings; a description is of use to a model
            return {
                **found,
                **({"description": source["description"]} if _is_text(source.get("description")) else {}),
            }
        written = self._write_keywords(others, depth=depth, is_part=True) if others else {}
        return {**found, **written}

    def _follow_aliases(self, reference: str) -> str | None:
        """Return the reference to what is none itself; None for a circle, which means nothing."""
        for _ in range(_MAX_ALIASES):
            found = as_object(self._document.find(reference))
            target = found.get("$ref")
            if not isinstance(target, str) or (found.keys() != {"$ref"} and not self._document.is_old):
                return reference
            reference = target
        return None

    def _choose_name(self, reference: str) -> str:
        if len(self._names) >= _MAX_DEFINITIONS:
            raise BadReference(f"it needs more than {_MAX_DEFINITIONS} schemas")
        tokens = pointer_tokens(reference)
        base = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in (tokens or ["root"])[-1])
        name, number = base or "schema", 2
        while name in self.definitions:
            name, number = f"{base}_{number}", number + 1
        return name

    def _write_keywords(self, source: Json, *, depth: int, is_part: bool) -> Json:
        found = self._copy_plain(source)
        # a plain `oneOf` or `anyOf` has members that can close themselves
        choices = {key: each for key in _COMBINING if isinstance(each := source.get(key), list) and each}
        shares = "allOf" in choices or ("properties" in source and bool(choices or "if" in source))
        for key, members in choices.items():
            found[key] = [self.write(each, depth=depth + 1, is_part=is_part or shares) for each in members]
        if isinstance(properties := source.get("properties"), dict):
            written = {
                str(name): self.write(each, depth=depth + 1)
                for name, each in properties.items()
                if not self._is_read_only(each)
            }
            found["properties"] = written
            if "required" in found:
                found["required"] = [name for name in found["required"] if name in written or name not in properties]
        self._write_members(source, found, depth)
        if not is_part:
            _close(found, shares=shares)
        elif found.get("type") == "object" and not found.keys() & {"properties", "additionalProperties", *_COMBINING}:
            found["additionalProperties"] = True
        return found

    def _write_members(self, source: Json, found: Json, depth: int) -> None:
        keys = _ONE if self._document.is_old else (*_ONE, *_ONE_MORE)
        for key in keys:
            value = source.get(key)
            if isinstance(value, dict | bool):
                is_part = key in ("not", "if", "then", "else")
                found[key] = self.write(value, depth=depth + 1, is_part=is_part)
        for key in _NAMED:
            if isinstance(value := source.get(key), dict):
                is_part = key == "dependentSchemas"
                found[key] = {
                    name: self.write(each, depth=depth + 1, is_part=is_part) for name, each in value.items()
                }
        if isinstance(items := source.get("prefixItems"), list) and items:
            found["prefixItems"] = [self.write(each, depth=depth + 1) for each in items]

    def _copy_plain(self, source: Json) -> Json:
        found = {key: value for key, value in source.items() if key in _PLAIN and _PLAIN[key](value)}
        if self._document.is_old:
            for keyword, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
                found.pop(exclusive, None)
                if source.get(exclusive) is True and keyword in found:
                    found[exclusive] = found.pop(keyword)
        if is_binary(source):
            found.pop("format", None)
            found = {**found, "type": "string", "contentEncoding": "base64"}
            found["description"] = " ".join(filter(None, (found.get("description"), BASE64)))
        return found

    def _accept_null(self, source: Json, found: Json) -> Json:
        """Return a schema of OpenAPI 3.0 that also accepts null, if it is `nullable`."""
        if not self._document.is_old or source.get("nullable") is not True:
            return found
        if isinstance(kind := found.get("type"), str) and not found.keys() & {*_COMBINING, "$ref"}:
            nullable: Json = {**found, "type": [kind, "null"]}
            if "enum" in found and None not in found["enum"]:
                nullable["enum"] = [*found["enum"], None]
            return nullable
        outside: Json = {key: found.pop(key) for key in ("description", "default", "deprecated") if key in found}
        return {"anyOf": [found, {"type": "null"}], **outside}

    def _is_read_only(self, schema: object) -> bool:
        try:
            return self._document.resolve(schema).get("readOnly") is True or as_object(schema).get("readOnly") is True
        except BadReference:
            return False


def is_binary(schema: Json) -> bool:
    """Return whether a schema is that of bytes, which a call gives as base64."""
    if schema.get("format") == "binary" and schema.get("type", "string") == "string":
        return True
    media_type = schema.get("contentMediaType")
    if not isinstance(media_type, str) or "contentEncoding" in schema or schema.get("type", "string") != "string":
        return False
    return not media_type.startswith("text/") and not media_type.endswith("json")


def _close(found: Json, *, shares: bool) -> None:
    """Let an object have no members but those that are named."""
    if shares:
        if not found.keys() & {"additionalProperties", "unevaluatedProperties"}:
            found["unevaluatedProperties"] = False
    elif "properties" in found and not found.keys() & {"additionalProperties", "unevaluatedProperties"}:
        # patterns name members, too
        found["additionalProperties"] = False
