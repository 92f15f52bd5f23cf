"""What commands say of servers that exchange the token of each caller."""

from __future__ import annotations

import pytest

from tests.cli.commands import CliRunner
from tests.documents import ROOT
from tests.program import Json

ISSUER = "https://login.example.com/realms/acme"
OAUTH: Json = {"grant": "token_exchange", "issuer": ISSUER, "client_id": "dynamic-mcp", "client_secret": "${SECRET}"}
JWT: Json = {"kind": "jwt", "issuer": ISSUER}
PLACE = "mcpServers.far.oauth"


def configure(cli: CliRunner, oauth: Json = OAUTH, auth: Json = (JWT,), **server: Json) -> None:
    http = {"public_url": "https://mcp.example.com/mcp", "auth": [*auth]}
    servers = {"far": {"url": "https://far.test/mcp", "oauth": oauth, **server}}
    cli.configure(servers, settings={"http": http} if auth else {})


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cr3t-of-the-client")


def problems(cli: CliRunner) -> list[tuple[str, str]]:
    """Return what `check` finds wrong, and where."""
    found = cli.run("check", "--json").json
    return [(each["where"], each["what"]) for each in found if each["level"] in ("warning", "error")]


def test_a_config_that_works_is_valid_and_shows_no_secret(cli: CliRunner) -> None:
    configure(cli)

    done = cli.run("check")

    assert done.code == 0
    assert "s3cr3t" not in done.out + done.err


def test_the_example_of_the_page_is_one_that_check_accepts(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    example = (ROOT / "examples" / "serving" / "exchange.json").read_text(encoding="utf-8")
    assert f"```json\n{example}```" in (ROOT / "docs" / "authentication.md").read_text(encoding="utf-8")
    cli.config.write_text(example, encoding="utf-8")
    for name in ("EXCHANGE_SECRET", "ENTRA_SECRET"):
        monkeypatch.setenv(name, "secret")

    assert [where for where, _ in problems(cli)] == ["settings.http.auth"], "there are no access rules, as it says"


@pytest.mark.parametrize(
    ("auth", "issuer", "hint"),
    [
        ((), ISSUER, "settings.http.auth"),
        (({"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}), ISSUER, "kind"),
        (({"kind": "bearer"},), ISSUER, "kind"),
        ((JWT,), "https://other.example.com", "kind"),
        ((JWT,), f"{ISSUER}/", f"write `{ISSUER}`"),
    ],
)
def test_a_server_for_which_no_client_can_have_a_token_is_an_error(
    cli: CliRunner, auth: Json, issuer: str, hint: str
) -> None:
    configure(cli, {**OAUTH, "issuer": issuer}, auth)

    done = cli.run("check", "--json")

    assert done.code == 2
    (error,) = (each for each in done.json if each["level"] == "error")
    assert error["where"] == f"{PLACE}.issuer"
    assert f"accepts tokens of `{issuer}`" in error["what"]
    assert hint in error["hint"]


@pytest.mark.parametrize(
    ("oauth", "where", "what"),
    [
        ({"client_id": None}, "grant", "needs `client_id`"),
        ({"issuer": None}, "grant", "needs `client_id`, and the `issuer`"),
        ({"shared": True}, "shared", "each caller has another token"),
        ({"grant": "on_behalf_of"}, "grant", "needs `client_id`, `client_secret`, `scopes`"),
        (
            {"grant": "on_behalf_of", "scopes": ["a"], "exchange": {"audience": "x"}},
            "exchange",
            "more than the `token_endpoint`",
        ),
        (
            {"grant": "on_behalf_of", "scopes": ["a"], "private_key_file": "key.pem"},
            "private_key_file",
            "wants a certificate",
        ),
        ({"grant": "client_credentials", "exchange": {"audience": "x"}}, "exchange", "only for the grants"),
        ({"exchange": {"token_endpoint": "http://x.example/token"}}, "exchange.token_endpoint", "is not https"),
    ],
)
def test_what_cannot_work_is_named_with_its_place(cli: CliRunner, oauth: Json, where: str, what: str) -> None:
    configure(cli, {name: each for name, each in {**OAUTH, **oauth}.items() if each is not None})

    found = [f"{place}: {why}" for place, why in problems(cli)]

    assert any(f"{PLACE}.{where}" in each and what in each for each in found), found


@pytest.mark.parametrize("server", [{"share": "all"}, {"headers": {"authorization": "Bearer x"}}])
def test_what_would_mix_up_callers_is_refused(cli: CliRunner, server: Json) -> None:
    configure(cli, **server)

    assert any("token_exchange" in what for _, what in problems(cli))


def test_an_issuer_without_tls_is_an_error_but_on_this_machine(cli: CliRunner) -> None:
    for host, is_wrong in (("http://login.example.com", True), ("http://127.0.0.1:8080", False)):
        configure(cli, {**OAUTH, "issuer": host}, ({"kind": "jwt", "issuer": host},))
        assert any("is not https" in what for _, what in problems(cli)) is is_wrong


@pytest.mark.parametrize("audience", [[], ["dynamic-mcp"]])
def test_entra_needs_tokens_that_are_for_the_client_there(cli: CliRunner, audience: list[str]) -> None:
    configure(cli, {**OAUTH, "grant": "on_behalf_of", "scopes": ["a"]}, ({**JWT, "audience": audience},))

    found = [what for where, what in problems(cli) if where == PLACE and "for `client_id`" in what]

    assert bool(found) is not bool(audience)


def test_no_login_is_asked_for(cli: CliRunner) -> None:
    configure(cli)

    login, status = cli.run("auth", "login", "far"), cli.run("auth", "status", "far", "--json")

    assert (login.code, status.code) == (0, 0)
    assert "exchanges the token of each caller" in login.err
    assert status.json == [{"group": "far", "state": "exchanges the token of each caller", "issuer": ISSUER}]


def test_doctor_says_that_it_has_no_token_to_try_it_with(cli: CliRunner) -> None:
    configure(cli)

    done = cli.run("doctor", "--json")

    (report,) = done.json["groups"]
    assert [each["level"] for each in report["findings"]] == ["note"]
    assert "is not tried" in report["findings"][0]["what"]


def test_a_call_from_a_terminal_says_what_is_needed(cli: CliRunner) -> None:
    configure(cli)

    done = cli.run("call", "far", "anything")

    assert done.code == 4
    assert f"needs a token of `{ISSUER}`" in done.err
    assert "settings.http.auth" in done.err
