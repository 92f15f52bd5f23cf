"""Whom `people` means: a name is enough where one provider names people, and has its issuer where several do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dynamic_mcp.config.issuers import Issuers, issuers_of
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.identity import Principal

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]

URL = "https://mcp.example.com/mcp"
BEARER = {"kind": "bearer"}
JWT = {"kind": "jwt", "issuer": "https://idp.example.com"}
FORWARDED = {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}
LOGIN = {"kind": "login"}
OIDC = {"kind": "login", "oidc": {"issuer": "https://idp.example.com", "client_id": "x"}}


def config(people: list[str], *providers: object) -> dict[str, object]:
    access = {"roles": {"admin": []}, "people": {name: ["admin"] for name in people}}
    return {"mcpServers": {}, "settings": {"access": access, "http": {"public_url": URL, "auth": list(providers)}}}


@pytest.mark.parametrize("providers", [(BEARER, JWT), (JWT, {**JWT, "issuer": "https://other"}), (BEARER, FORWARDED)])
def test_a_name_that_can_be_several_people_is_refused(refuse: Refuse, providers: tuple[object, ...]) -> None:
    error = refuse(config(["local", "admin"], *providers))

    assert error.where == "settings.access.people.admin"
    assert "several people" in error.problem


def test_the_refusal_of_a_name_says_what_to_write(refuse: Refuse) -> None:
    hint = refuse(config(["admin"], BEARER, JWT, OIDC)).hint

    for spelling in ("token:admin", "https://idp.example.com:admin", "https://mcp.example.com:admin"):
        assert f"`{spelling}`" in hint


@pytest.mark.parametrize("providers", [(BEARER,), (JWT,), (FORWARDED,), (LOGIN, FORWARDED), (OIDC,)])
def test_a_name_is_enough_where_nobody_else_can_have_it(
    read_config: ReadConfig, providers: tuple[object, ...]
) -> None:
    read = read_config(config(["admin", "local"], *providers))

    assert read.access is not None
    assert read.access.principals == {}


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("token:admin", [Principal("token", "admin")]),
        ("token:https://idp.example.com:ann", [Principal("token", "https://idp.example.com:ann")]),
        ("https://idp.example.com:ann", [Principal("https://idp.example.com", "ann")]),
        ("https://idp.example.com:8443:ann", [Principal("https://idp.example.com:8443", "ann")]),
        ("https://idp.example.com:auth0|7:x", [Principal("https://idp.example.com", "auth0|7:x")]),
    ],
)
def test_a_name_with_an_issuer_means_one_person(read_config: ReadConfig, name: str, who: list[Principal]) -> None:
    other = {**JWT, "issuer": "https://idp.example.com:8443"}
    read = read_config(config([name], BEARER, JWT, other))

    assert read.access is not None
    assert list(read.access.principals[name]) == who


def test_a_login_behind_a_reverse_proxy_names_people_as_that_does(read_config: ReadConfig) -> None:
    read = read_config(config(["forwarded:ann", "https://mcp.example.com:bob", "token:ci"], LOGIN, FORWARDED, BEARER))

    assert read.access is not None
    issuers = ("forwarded", "https://mcp.example.com")
    assert read.access.principals["forwarded:ann"] == tuple(Principal(each, "ann") for each in issuers)
    assert read.access.principals["https://mcp.example.com:bob"] == tuple(Principal(each, "bob") for each in issuers)


def test_an_issuer_without_a_subject_names_nobody(refuse: Refuse) -> None:
    assert "several people" in refuse(config(["token:"], BEARER, JWT)).problem


def test_a_warning_names_an_issuer_that_the_config_does_not_have(read_config: ReadConfig) -> None:
    (warning,) = read_config(config(["https://idp.exmaple.com:ann"], JWT)).warnings

    assert warning.startswith("settings.access.people[")
    assert "no provider has this issuer" in warning


def test_without_http_every_name_is_a_subject() -> None:
    assert issuers_of(None) == Issuers()
    assert Issuers().find("token:ann") == ()
