"""The published schemas of the registry's documents, and documents that are made from them.

The schemas come with a package of the dev group, none of whose code is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

Json = Any  # whatever JSON a schema or a document has

VERSIONS = ("2025_07_09", "2025_09_16", "2025_09_29", "2025_10_11", "2025_10_17", "2025_12_11")
# Set in the environment of the tests: no document may get at it.
CANARY = "do-not-leak-this"

_WORDS = st.sampled_from(
    [
        "a",
        "two words",
        "--flag",
        "-x",
        "a=b",
        "ü",
        "${CANARY}",
        "${CANARY:-x}",
        "$${CANARY}",
        "$",
        "{",
        "}",
        "",
        "/srv",
        "~",
    ]
)
_BRACES = st.sampled_from(
    ["{one}", "${one}", "pre-{one}-{two}", "{one}{two}", "{unknown}", "A={one}", "{one", "x{{one}}"]
)
_NAMES = st.sampled_from(
    ["--port", "-p", "port", "--", "TOKEN", "X-Key", "Authorization", "-e", "API_KEY", "a b", "é"]
)
_URLS = [
    "https://example.com/mcp",
    "http://127.0.0.1:8080/{one}",
    "https://{one}.example.com/{two}?k={one}",
    "http://a.b/",
]
_PACKAGES = st.sampled_from(
    [
        ("npm", "@scope/name"),
        ("npm", "name"),
        ("pypi", "some.name"),
        ("pypi", "name[extra]"),
        ("oci", "ghcr.io/a/b:1.0"),
        ("oci", "a/b"),
        ("nuget", "Some.Name"),
        ("mcpb", "https://example.com/a.mcpb"),
        ("npm", "-name"),
        ("pypi", "../name"),
        ("other", "name"),
    ]
)
_VERSIONS_OF_PACKAGES = st.sampled_from(
    ["1.0.0", "1.2.3", "2.0", "0.0.1", "0.1.0-beta.1", "2025.1.14", "^1.2.3", "1.x", "next", "-1"]
)
_HINTS = st.sampled_from(["npx", "uvx", "docker", "podman", "dnx", "pipx", "node", "--help"])
_BASES = st.sampled_from(
    ["https://registry.npmjs.org", "https://pypi.org", "https://packages.example.com/x", "http://a.b"]
)
# What a schema only calls a text, and where anything but certain texts would be refused at once.
_TEXTS: Mapping[str, st.SearchStrategy[Json]] = {
    "name": _NAMES,
    "value": st.one_of(_WORDS, _BRACES, _BRACES),
    "default": _WORDS,
    "url": st.sampled_from(_URLS),
    "valueHint": st.sampled_from(["path", "port", "a b", ""]),
    "version": _VERSIONS_OF_PACKAGES,
    "runtimeHint": _HINTS,
    "registryBaseUrl": _BASES,
}


@cache
def load(version: str) -> Json:
    """Return a published schema, or skip the test."""
    try:
        folder = distribution("skillsaw").locate_file("skillsaw/schemas/mcp_registry")
    except PackageNotFoundError:
        pytest.skip("the package `skillsaw`, which has the published schemas, is not installed")
    return json.loads(Path(str(folder), f"v{version}", "server.schema.json").read_text())


def documents(version: str) -> st.SearchStrategy[Json]:
    """Return documents that are valid by a published schema, most of which can be used."""
    schema = load(version)
    return _Maker(schema["definitions"]).make({"$ref": schema["$ref"]}, "")


class _Maker:
    def __init__(self, definitions: Json) -> None:
        self._definitions = definitions

    def make(self, schema: Json, name: str) -> st.SearchStrategy[Json]:
        """Return values that are valid by a schema; `name` is that of the member."""
        if "$ref" in schema:
            return self.make(self._definitions[schema["$ref"].rpartition("/")[2]], name)
        if "allOf" in schema:
            return st.tuples(*(self.make(each, name) for each in schema["allOf"])).map(_union)
        if "anyOf" in schema and "properties" not in schema:
            return st.one_of([self.make(each, name) for each in schema["anyOf"]])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        match schema["type"]:
            case "object":
                return self._make_object(schema)
            case "array":
                return st.lists(self.make(schema["items"], name), max_size=2)
            case "boolean":
                return st.booleans()
        return self._make_text(schema, name)

    def _make_object(self, schema: Json) -> st.SearchStrategy[Json]:
        members = {name: self.make(each, name) for name, each in schema.get("properties", {}).items()}
        if "packages" in members:
            return _fixed(members, {"packages", *schema.get("required", [])})
        if "identifier" in members:
            return self._make_package(members, schema["required"])
        if not members and isinstance(extra := schema.get("additionalProperties"), dict):
            return st.dictionaries(st.sampled_from(["one", "two"]), self.make(extra, ""), max_size=2)
        choices = [set(each["required"]) for each in schema.get("anyOf", [{"required": []}])]
        if any("value" in choice for choice in choices):  # which another part of the schema describes
            members["value"] = _TEXTS["value"]
        return st.one_of([_fixed(members, {*schema.get("required", []), *choice}) for choice in choices])

    def _make_package(self, members: Json, required: list[str]) -> st.SearchStrategy[Json]:
        kind = "registryType" if "registryType" in members else "registry_type"
        rest = {name: each for name, each in members.items() if name not in (kind, "identifier")}
        any_transport, stdio = rest["transport"], st.just({"type": "stdio"})
        rest["transport"] = st.integers(0, 5).flatmap(lambda number: stdio if number else any_transport)

        def build(pair: tuple[str, str], package: Json) -> Json:
            return {**package, kind: pair[0], "identifier": pair[1]}

        lists = {each for each in rest if each.endswith(("Arguments", "_arguments", "Variables", "_variables"))}
        return st.builds(build, _PACKAGES, _fixed(rest, {*required, *lists}))

    def _make_text(self, schema: Json, name: str) -> st.SearchStrategy[Json]:
        if schema.get("format") == "uri" and name not in ("registryBaseUrl", "registry_base_url"):
            return st.sampled_from(
                ["https://example.com/", "http://127.0.0.1:8080/mcp", "http://a.b/", "https://a.b/c?d=e"]
            )
        camel = re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
        if "pattern" in schema and camel != "url":
            return st.from_regex(schema["pattern"], fullmatch=True).filter(lambda text: _fits(text, schema))
        if camel == "name" and "maxLength" in schema:
            return st.just("io.github.example/weather")
        if camel in _TEXTS:
            return _TEXTS[camel]
        return (
            st.just("https://example.com/") if schema.get("format") == "uri" else st.sampled_from(["a", "some text"])
        )


def _fixed(members: Mapping[str, st.SearchStrategy[Json]], required: set[str]) -> st.SearchStrategy[Json]:
    optional = {name: each for name, each in members.items() if name not in required}
    return st.fixed_dictionaries({name: members[name] for name in members if name in required}, optional=optional)


def _fits(text: str, schema: Json) -> bool:
    return text.isascii() and schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1000)


def _union(parts: tuple[Json, ...]) -> Json:
    return {name: value for part in parts for name, value in part.items()}
