"""A server is told of the extension that the login to it uses, and of nothing else that the client has not said."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from dynamic_mcp.client import ClientHello
from dynamic_mcp.config.resolved import Grant, OAuth
from dynamic_mcp.upstream.extensions import declare_login

ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"


@pytest.mark.parametrize(
    ("grant", "name"),
    [("client_credentials", "io.modelcontextprotocol/oauth-client-credentials"), ("cross_app", ENTERPRISE)],
)
def test_the_extension_of_a_login_is_declared_beside_what_the_client_declares(grant: Grant, name: str) -> None:
    hello = ClientHello(capabilities=Raw(b'{"roots":{"x":1},"extensions":{"a/b":{"c":2}}}'))

    declared = declare_login(hello, OAuth(grant=grant))

    assert json.loads(bytes(declared.capabilities)) == {
        "roots": {"x": 1},
        "extensions": {"a/b": {"c": 2}, name: {}},
    }
    assert (declared.revision, declared.client_info) == (hello.revision, hello.client_info)


@pytest.mark.parametrize("grant", ["authorization_code", "jwt_bearer"])
def test_a_login_without_an_extension_declares_none(grant: Grant) -> None:
    hello = ClientHello()
    assert declare_login(hello, OAuth(grant=grant)) is hello


@pytest.mark.parametrize(
    "capabilities", [b'{"extensions":{"%s":{"own":1}}}' % ENTERPRISE.encode(), b'{"extensions":5}', b"[]"]
)
def test_what_the_client_says_of_the_extension_itself_is_left_alone(capabilities: bytes) -> None:
    hello = ClientHello(capabilities=Raw(capabilities))
    assert declare_login(hello, OAuth(grant="cross_app")) is hello
