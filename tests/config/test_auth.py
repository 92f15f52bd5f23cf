"""How HTTP clients say who they are: what providers need of the rest of the config, and which tokens count."""

from collections.abc import Callable

import pytest

from dynamic_mcp.config.auth import BearerAuth, Forwarded, LoginAuth, NamedToken
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError

ReadConfig = Callable[..., Config]
Refuse = Callable[..., ConfigError]

LONG = "0123456789abcdef01234567"


def config(*providers: object, **http: object) -> dict[str, object]:
    return {"mcpServers": {}, "settings": {"http": {**http, "auth": list(providers)}}}


@pytest.mark.parametrize(
    "provider",
    [
        {"kind": "jwt", "issuer": "https://idp"},
        {"kind": "login", "oidc": {"issuer": "https://idp", "client_id": "x"}},
    ],
)
def test_what_has_tokens_for_this_server_needs_its_url(refuse: Refuse, provider: object) -> None:
    error = refuse(config(provider))

    assert error.where == "settings.http"
    assert "`public_url`" in error.problem


def test_a_login_needs_somebody_who_asks_for_a_password(refuse: Refuse, read_config: ReadConfig) -> None:
    url = "https://mcp.example.com/mcp"
    proxied = {"kind": "forwarded", "trusted_proxies": ["unix"]}

    assert "`oidc` or `forwarded`" in refuse(config({"kind": "login"}, public_url=url)).problem
    assert read_config(config({"kind": "login"}, proxied, public_url=url)).http


def test_tokens_and_a_reverse_proxy_need_no_url(read_config: ReadConfig) -> None:
    http = read_config(config({"kind": "bearer"}, {"kind": "forwarded", "trusted_proxies": ["10.0.0.0/8"]})).http

    assert http is not None
    assert http.auth == (BearerAuth(), Forwarded(("10.0.0.0/8",)))


def test_a_warning_says_that_everybody_is_believed(read_config: ReadConfig) -> None:
    trusted = ["10.0.0.0/8", "0.0.0.0/0", "::/0"]
    (first, second) = read_config(config({"kind": "forwarded", "trusted_proxies": trusted})).warnings

    assert first == "settings.http.auth[0].trusted_proxies: `0.0.0.0/0` lets any client be any user"
    assert "`::/0`" in second


def test_a_token_that_can_be_guessed_or_lacks_its_variable_is_left_out_with_a_warning(
    read_config: ReadConfig,
) -> None:
    tokens = [
        {"token": "${LONG}", "subject": "ci", "roles": ["reader"]},
        {"token": LONG[:-1], "subject": "short"},
        {"token": "${UNSET}", "subject": "unset"},
        {"token": "a-long-beginning-of-a-token-${UNSET}", "subject": "half"},
    ]
    read = read_config(config({"kind": "bearer", "tokens": tokens}), LONG=LONG)

    assert read.http is not None
    assert read.http.auth == (BearerAuth((NamedToken(LONG, "ci", ("reader",)),)),)
    assert [warning.partition(": ")[0] for warning in read.warnings] == [
        f"settings.http.auth[0].tokens[{number}].token" for number in (1, 2, 3)
    ]
    assert LONG[:-1] not in str(read.warnings)


def test_a_login_knows_the_scopes_that_access_rules_ask_for(read_config: ReadConfig) -> None:
    proxied = {"kind": "forwarded", "trusted_proxies": ["unix"]}
    own = {"auth": [{"kind": "login"}, proxied], "public_url": "https://mcp.example.com/mcp"}
    rules = [{"servers": ["a"], "scope": "write"}, {"servers": ["b"], "scope": "files"}, {"servers": ["c"]}]
    settings = {"http": own, "access": {"roles": {"dev": rules}}}
    http = read_config({"mcpServers": {}, "settings": settings}).http
    assert http is not None
    assert isinstance(http.auth[0], LoginAuth)
    assert http.auth[0].scopes == ("files", "write")


def test_documents_of_clients_on_this_machine_are_a_choice(read_config: ReadConfig) -> None:
    for chosen in ({}, {"local_client_documents": True}):
        login = {"kind": "login", "oidc": {"issuer": "https://idp", "client_id": "x"}, **chosen}
        http = read_config(config(login, public_url="http://127.0.0.1:8808/mcp")).http

        assert http is not None
        assert [each.has_local_documents for each in http.auth if isinstance(each, LoginAuth)] == [bool(chosen)]
