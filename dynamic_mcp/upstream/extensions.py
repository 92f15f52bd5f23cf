"""Extensions of the protocol that the proxy itself uses with a server, which it declares beside the client's."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from dynamic_mcp.client import ClientHello
from dynamic_mcp.config.resolved import Grant, OAuth
from dynamic_mcp.mcp import wire

# https://modelcontextprotocol.io/extensions, the authorization extensions.
_BY_GRANT: Mapping[Grant, str] = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "cross_app": "io.modelcontextprotocol/enterprise-managed-authorization",
}


def declare_login(hello: ClientHello, oauth: OAuth) -> ClientHello:
    """Return what a server is told of the client, with the extension that its login uses, if it uses one."""
    name = _BY_GRANT.get(oauth.grant)
    if name is None or len(wire.member(hello.capabilities, "extensions", name)):
        return hello
    try:
        capabilities = wire.with_member(hello.capabilities, {}, "extensions", name)
    except wire.Malformed:  # what the client declared is for the server to judge
        return hello
    return structs.replace(hello, capabilities=capabilities)
