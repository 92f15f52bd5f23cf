"""One set of sections decides what a config is, and makes the models that word its problems; both must agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import pytest
from msgspec import Struct

from dynamic_mcp.config import form
from dynamic_mcp.config.access import Profile, ProfileTools, RolesFrom
from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.config.auth import Forwarded, Jwt, NamedToken, Oidc
from dynamic_mcp.config.http import Http, Tls
from dynamic_mcp.config.problems import find_problems
from dynamic_mcp.config.resolved import Embeddings, IdentityProviderConfig
from dynamic_mcp.config.secret_programs import SecretProgram
from dynamic_mcp.config.section import alternatives, file_fields, reader, sections_in
from dynamic_mcp.config.types import SourceName
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.cluster.config import Cluster
from dynamic_mcp.features.guards.config import Guard
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.registry.config import Registry

Wrap = Callable[[Any], dict[str, object]]  # Any: JSON
Place = Callable[[Any], Any]

# What people write, rightly or wrongly, in whatever field.
_PLAIN = """
x 30s 1m30s never off 100kB 1B safe all on lazy eager stdio http sse ws http://h htp://h http://h:0 ${HOST}
debug json authorization_code RS256 group original auto file
5/s 0660 /mcp /mcp/ /health :80 8808 localhost:80 [::1]:80 [::1] unix:/s unix: 99999 a:b
"""
_WORDS = ["", " ", "1.5 MIN", *_PLAIN.split()]
_NUMBERS = [0, 1, 5, 5.0, 0.5, -1, 20, 21, 1000, 65535, 65536, 10**9, 10**30, 1e300, float("inf"), True, False]
_LISTS: list[object] = [
    [],
    ["a"],
    ["a", "b"],
    ["a", "{}"],
    [1],
    [None],
    [["a"]],
    ["*"],
    ["unix"],
    ["10.0.0.0/8"],
    ["https://a.b"],
]
_ENVIRONMENTS: list[object] = [{}, {"A": "b"}, {"x-own": "b"}, {"A": 1}, {"A": None}]
_OBJECTS = [*_ENVIRONMENTS, {"A=B": "c"}, {"a b": "c"}, {"": "c"}]
_VALUES: list[object] = [None, *_WORDS, *_NUMBERS, *_LISTS, *_OBJECTS]
_NEEDED: dict[type[Struct], dict[str, object]] = {
    Embeddings: {"url": "http://h", "model": "m"},
    IdentityProviderConfig: {"token_endpoint": "http://h", "client_id": "x"},
    NamedToken: {"token": "x", "subject": "x"},
    Jwt: {"issuer": "http://h"},
    Forwarded: {"trusted_proxies": ["unix"]},
    Oidc: {"issuer": "http://h", "client_id": "x"},
    RolesFrom: {"map": {}},
    Tls: {"cert": "c.pem", "key": "k.pem"},
    Cluster: {"peers": "http://h", "keys": ["x"]},
    Guard: {"deny": "x"},
    Limit: {"rate": "5/s"},
    Cache: {"tools": ["a"]},
    Redact: {"pattern": "x"},
    Plugin: {"use": "x"},
    Registry: {"name": "a", "url": "http://h"},
    SecretProgram: {"command": ["a", "{}"]},
}
# What a section must have for some of its subsections, and an entry of a list beside it.
_NEEDED_INSIDE: dict[type[Struct], dict[str, object]] = {Http: {"public_url": "https://h/mcp"}}
_NEEDED_BESIDE: dict[object, list[object]] = {"login": [{"kind": "forwarded", "trusted_proxies": ["unix"]}]}
_NAMES = ["a", "x-a", "日本", "", " ", "n" * 64, "n" * 65, "a\u200b", "a\nb"]


def _server(members: dict[str, object]) -> dict[str, object]:
    return {"mcpServers": {"a": members}}


def _settings(members: dict[str, object]) -> dict[str, object]:
    return {"mcpServers": {}, "settings": members}


def _nest(wrap: Wrap, key: str, extra: dict[str, object]) -> Wrap:
    return lambda members: wrap({**extra, key: members})


def _split(
    kind: type[Struct], wrap: Wrap, needed: dict[str, object]
) -> Iterator[tuple[type[Struct], Wrap, dict[str, object]]]:
    """Yield a section and its subsections: how to make a config of its members, and its required members."""
    yield kind, wrap, needed
    for key, each in file_fields(kind).items():
        for part, place in _sections_in(each.type):
            inside = _nest(wrap, key, {**needed, **_NEEDED_INSIDE.get(kind, {})})
            yield from _split(part, _place(inside, place), {**_tag(part), **_NEEDED.get(part, {})})


def _place(wrap: Wrap, place: Place) -> Wrap:
    return lambda members: wrap(place(members))


def _tag(section: type[Struct]) -> dict[str, object]:
    config = section.__struct_config__
    return {"kind": config.tag} if config.tag_field == "kind" else {}


def _sections_in(annotation: object, place: Place = lambda members: members) -> Iterator[tuple[type[Struct], Place]]:
    """Yield each section of an annotation, and what puts its members where they are."""
    for section in sections_in(annotation):
        yield section, place
    for part in alternatives(annotation):
        parts = get_args(part)
        if get_origin(part) is dict:
            name = "name" if parts[0] == SourceName else "$.name"
            yield from _sections_in(parts[1], lambda members, name=name: place({name: members}))  # type: ignore[misc]
        elif get_origin(part) in (list, tuple):
            yield from _sections_in(parts[0], lambda members: place([members, *_beside(members)]))


def _beside(members: Any) -> list[object]:
    return _NEEDED_BESIDE.get(members.get("kind"), [])


SECTIONS: list[tuple[type[Struct], Wrap, dict[str, object]]] = [
    *_split(form.ProgramEntry, _server, {"command": "x"}),
    *_split(form.RemoteEntry, _server, {"url": "http://h"}),
    *_split(form.Settings, _settings, {}),
    *(
        (each, wrap, needed)
        for each, wrap, needed in _split(form.Root, lambda members: members, {"mcpServers": {}})
        if each in (form.Root, Profile, ProfileTools)
    ),
]


def is_accepted(tree: object) -> bool:
    """Tell whether the form accepts a config, and check that the models agree."""
    try:
        form.root(tree)
    except ValueError:
        assert find_problems(tree) != [], f"refused without words: {tree}"
        return False
    assert find_problems(tree) == [], f"taken, though it is wrong: {tree}"
    return True


@pytest.mark.parametrize(
    ("section", "wrap", "needed"), SECTIONS, ids=[f"{n}-{kind.__name__}" for n, (kind, _, _) in enumerate(SECTIONS)]
)
def test_whatever_is_refused_has_words_and_whatever_is_taken_has_none(
    section: type[Struct], wrap: Wrap, needed: dict[str, object]
) -> None:
    assert is_accepted(wrap(needed))
    assert is_accepted(wrap({**needed, "x-own": {"any": ["thing"]}}))
    assert not is_accepted(wrap({**needed, "bogus": None}))
    for name in needed:
        assert not is_accepted(wrap({key: value for key, value in needed.items() if key != name}))
    for key, each in file_fields(section).items():
        verdicts = {is_accepted(wrap({**needed, key: value})) for value in _VALUES}
        if _takes_json(each.type):
            assert verdicts == {True}, f"{key} does not take any JSON"
            continue
        assert verdicts == {True, False}, f"{key} takes all or nothing of what people write"


def _described_defaults(section: type[Struct]) -> Iterator[tuple[str, object, object]]:
    """Yield the fields whose description names a default: its value, and what the field has if it is left out."""
    for key, each in file_fields(section).items():
        (description,) = (part for part in get_args(each.type) if isinstance(part, str))
        named = re.search(r"Default: `?(\S+?)`?\.$", description)
        is_one = isinstance(each.default, (str, bytes, int, float, TcpAddress)) and each.default != ""
        if named is not None and is_one:
            is_json = re.fullmatch(r"true|false|[1-9][0-9]*", named[1])
            default = reader(each.type)(json.loads(named[1]) if is_json else named[1])
            yield key, default, each.default


def test_the_default_that_a_description_names_is_the_one_of_the_struct() -> None:
    found = {
        (section.__name__, key): (named, default)
        for section, _, _ in SECTIONS
        for key, named, default in _described_defaults(section)
    }
    assert {where: values for where, values in found.items() if values[0] != values[1]} == {}
    assert len(found) > 40


def _takes_json(annotation: object) -> bool:
    return any(part is Any for part in alternatives(annotation))


@pytest.mark.parametrize("name", _NAMES)
def test_form_and_models_take_the_same_names(name: str) -> None:
    is_accepted({"mcpServers": {name: {"command": "x"}}})


@pytest.mark.parametrize("value", _VALUES, ids=str)
def test_form_and_models_refuse_what_is_no_object(value: object) -> None:
    assert not is_accepted(value)
    is_accepted({"mcpServers": value})
    is_accepted({"mcpServers": {"a": value}})


def test_nobody_can_name_the_kind_of_a_server_that_the_form_finds_out() -> None:
    tree = {"mcpServers": {"a": {"command": "x", "x-kind": "remote", "env": {"x-kind": "mine"}}}}
    assert is_accepted(tree)
    server = form.root(tree).servers["a"]
    assert isinstance(server, form.ProgramEntry)
    assert server.env == {"x-kind": "mine"}


def test_nobody_can_give_what_the_program_finds_out_about_a_section() -> None:
    members: dict[str, object] = {
        "command": "x",
        "guards": [{"deny": "x", "x-id": "mine"}],
        "x-rules": {"limits": [{"rate": "1/s"}]},
    }
    server = form.root(_server(members)).servers["a"]
    assert server.rules == {"guards": (Guard(deny="x"),)}


@pytest.mark.parametrize("depth", [100, 5000])
@pytest.mark.parametrize("key", ["tools", "x-own", "bogus"])
def test_a_config_that_is_nested_without_sense_has_an_end(depth: int, key: str) -> None:
    tree: dict[str, object] = {}
    for _ in range(depth):
        tree = {key: tree}
    server: dict[str, object] = {"command": "x", **tree}
    taken = key == "x-own"
    try:
        form.root({"mcpServers": {"a": server}})
    except (ValueError, RecursionError):
        assert not taken
    else:
        assert taken
    assert bool(find_problems({"mcpServers": {"a": server}})) is not taken
