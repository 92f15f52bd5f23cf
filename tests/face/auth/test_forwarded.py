"""What a reverse proxy says of its users, and what everybody else says of themselves."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.auth import Forwarded
from dynamic_mcp.face.auth.forwarded import ForwardedProvider
from dynamic_mcp.face.auth.provider import CredentialDenial
from dynamic_mcp.face.http.exchange import GONE
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from tests.face.auth.parties import head_of

PROXY = Forwarded(("10.0.0.0/8", "2001:db8::1", "unix"))


@pytest.mark.parametrize("peer", ["10.1.2.3", "2001:db8::1", "", "::ffff:10.0.0.1"])
def test_a_trusted_peer_names_the_user_and_the_groups(peer: str) -> None:
    provider = ForwardedProvider(PROXY)
    head = head_of(peer, x_forwarded_user=" ann@example.com ", x_forwarded_groups="dev, ops ,,dev")

    assert provider.recognises(head, None)
    assert provider.authenticate(head, None) == Authentication(
        Principal("forwarded", "ann@example.com"), "forwarded", claims=(("groups", ("dev", "ops")),)
    )


@pytest.mark.parametrize("peer", ["127.0.0.1", "11.0.0.1", "2001:db8::2", "::1", "unix", GONE])
def test_headers_of_everybody_else_mean_nothing(peer: str) -> None:
    head = head_of(peer, x_forwarded_user="ann", x_forwarded_groups="dev")

    assert not ForwardedProvider(PROXY).recognises(head, None)


def test_a_unix_socket_is_trusted_only_if_the_config_says_so() -> None:
    assert not ForwardedProvider(Forwarded(("0.0.0.0/0",))).recognises(head_of("", x_forwarded_user="ann"), None)


@pytest.mark.parametrize("user", ["", "  "])
def test_an_empty_user_is_none(user: str) -> None:
    assert not ForwardedProvider(PROXY).recognises(head_of("10.0.0.1", x_forwarded_user=user), None)


def test_groups_without_a_user_are_nobody() -> None:
    assert not ForwardedProvider(PROXY).recognises(head_of("10.0.0.1", x_forwarded_groups="admin"), None)


@pytest.mark.parametrize("name", ["x-forwarded-user", "x-forwarded-groups"])
def test_a_header_that_is_there_twice_is_refused(name: str) -> None:
    head = head_of("10.0.0.1", repeated=name, x_forwarded_user="ann, eve", x_forwarded_groups="a, b")

    denial = ForwardedProvider(PROXY).authenticate(head, None)
    assert isinstance(denial, CredentialDenial)
    assert denial.error == "invalid_request"
    assert "eve" not in denial.why


def test_headers_of_other_names_are_those_of_the_config() -> None:
    provider = ForwardedProvider(Forwarded(("unix",), user=b"remote-user", groups=b"remote-groups"))

    assert not provider.recognises(head_of("", x_forwarded_user="ann"), None)
    found = provider.authenticate(head_of("", remote_user="ann", x_forwarded_groups="admin"), None)
    assert found == Authentication(Principal("forwarded", "ann"), "forwarded")


@pytest.mark.parametrize(
    "headers", [{"x_forwarded_user": "a" * 501}, {"x_forwarded_groups": ",".join(map(str, range(201)))}]
)
def test_too_much_of_a_name_or_of_groups_is_refused(headers: dict[str, str]) -> None:
    assert isinstance(
        ForwardedProvider(PROXY).authenticate(head_of("", **{"x_forwarded_user": "ann", **headers}), None),
        CredentialDenial,
    )


def test_a_user_counts_until_the_reverse_proxy_says_otherwise() -> None:
    provider = ForwardedProvider(PROXY)
    found = provider.authenticate(head_of("", x_forwarded_user="ann"), None)

    assert isinstance(found, Authentication)
    assert provider.is_valid(found)
    assert not provider.is_valid(LOCAL_USER)
