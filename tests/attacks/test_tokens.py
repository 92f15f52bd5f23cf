"""Credentials that are forged, expired, for others, or in the wrong place let nobody in and give nobody's rights."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest

from tests.attacks.loop_thread import entered
from tests.attacks.target import AS_JSON, BOTH, HELLO, McpClient, Target, bearer, office, serving
from tests.attacks.wire import Answer, Json
from tests.journeys.remote_server import free_port
from tests.oidc_provider import OidcProvider
from tests.signing_keys import encode, key_for, public_jwk, sign

STATIC = "token-of-admin-0123456789abcdef"
_numbers = itertools.count(1)
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcProvider]:
    with entered(OidcProvider()) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, issuer: OidcProvider) -> Iterator[Target]:
    folder, port = tmp_path_factory.mktemp("tokens"), free_port()
    http = {
        "trusted_proxies": ["127.0.0.1"],
        "public_url": f"http://127.0.0.1:{port}/mcp",
        "auth": [
            {"kind": "bearer", "tokens": [{"token": STATIC, "subject": "admin"}]},
            {"kind": "jwt", "issuer": issuer.issuer},
        ],
    }
    access = {"roles": {"all": [{}]}, "people": {"token:admin": ["all"]}}
    with serving(folder, {"office": office(folder)}, port=port, http=http, access=access) as target:
        assert "has run" in json.dumps(client_with(target, STATIC).call("office", "query"))
        yield target


def begin(target: Target, *lines: str, path: str = "/mcp") -> Answer:
    return target.request("POST", path, BOTH, AS_JSON, elsewhere(), *lines, body=INITIALIZE)


def elsewhere() -> str:
    """Return a header with an address that nothing has come from, since each has some wrong tokens only."""
    return f"X-Forwarded-For: 192.0.2.{next(_numbers) % 255}, 198.51.100.{next(_numbers) % 255}"


def client_with(target: Target, token: str) -> McpClient:
    return McpClient(target, elsewhere(), bearer(token)).begin()


def mint(issuer: OidcProvider, target: Target, **changes: Json) -> str:
    return issuer.mint(f"{target.origin}/mcp", **changes)


def forged(issuer: OidcProvider, target: Target) -> dict[str, str]:
    """Return tokens that say that they are of the issuer."""
    now = int(time.time())
    audience = f"{target.origin}/mcp"
    claims = {"iss": issuer.issuer, "sub": "admin", "aud": audience, "iat": now, "exp": now + 600}
    kid = issuer.kid("RS256")
    key, evil = key_for("RS256"), key_for("RS256", 66)
    pem = key.as_bytes(encoding="PEM", private=False)
    good = mint(issuer, target)
    start, payload, signature = good.split(".")
    unsigned = encode(json.dumps({"alg": "none", "kid": kid}).encode())
    return {
        "no algorithm": sign({"alg": "none"}, claims, None),
        "no algorithm in capitals": sign({"alg": "NoNe", "kid": kid}, claims, None),
        "no algorithm with the signature of another": f"{unsigned}.{payload}.{signature}",
        "the public key as a secret": sign({"alg": "HS256", "kid": kid}, claims, pem),
        "the JSON of the public key as a secret": sign(
            {"alg": "HS256", "kid": kid}, claims, json.dumps(public_jwk(key)).encode()
        ),
        "an empty secret": sign({"alg": "HS256", "kid": kid}, claims, b""),
        "a key of its own": sign({"alg": "RS256", "kid": kid}, claims, evil),
        "a key that it brings along": sign({"alg": "RS256", "jwk": public_jwk(evil)}, claims, evil),
        "a key that it brings along under a known name": sign(
            {"alg": "RS256", "kid": kid, "jwk": public_jwk(evil, kid=kid)}, claims, evil
        ),
        "an address of its own keys": sign({"alg": "RS256", "jku": "http://127.0.0.1:1/jwks"}, claims, evil),
        "a key of the file system": sign({"alg": "HS256", "kid": "../../../../dev/null"}, claims, b""),
        "a key of a query": sign({"alg": "RS256", "kid": "x' UNION SELECT 'a' --"}, claims, evil),
        "a list as a key": sign({"alg": "RS256", "kid": [kid]}, claims, key),
        "an unknown critical header": sign({"alg": "RS256", "kid": kid, "crit": ["x"], "x": 1}, claims, key),
        "an unencoded payload": sign({"alg": "RS256", "kid": kid, "crit": ["b64"], "b64": False}, claims, key),
        "another type of token": sign({"alg": "RS256", "kid": kid, "typ": "id_token+jwt"}, claims, key),
        "another signature scheme": sign({"alg": "RS256", "kid": kid}, claims, key, by="PS256"),
        "expired": mint(issuer, target, exp=now - 120),
        "never expiring": mint(issuer, target, exp=None),
        "not valid yet": mint(issuer, target, nbf=now + 600),
        "an endless time": sign(
            {"alg": "RS256", "kid": kid},
            json.dumps({**claims, "exp": 0}).replace('"exp": 0', '"exp": 1e999').encode(),
            key,
        ),
        "another audience": issuer.mint("https://other.example/mcp"),
        "an audience that begins like ours": issuer.mint(f"{audience}.evil.example"),
        "no audience": issuer.mint(None),
        "another issuer": mint(issuer, target, iss="https://evil.example"),
        "an issuer with a slash": mint(issuer, target, iss=f"{issuer.issuer}/"),
        "no subject": mint(issuer, target, sub=None),
        "an empty subject": mint(issuer, target, sub=""),
        "a list of subjects": mint(issuer, target, sub=["admin"]),
        "claims twice": sign(
            {"alg": "RS256", "kid": kid}, json.dumps(claims).replace("{", '{"sub":"x",', 1).encode(), key
        ),
        "a changed claim": f"{start}.{encode(json.dumps(claims).encode())}.{signature}",
        "a cut signature": good[:-4],
        "padding": f"{good}==",
        "four parts": f"{good}.{signature}",
        "an encrypted one": f"{start}.a.b.c.d",
        "a letter too many of a static token": STATIC + "f",
        "a letter too few of a static token": STATIC[:-1],
        "capitals of a static token": STATIC.upper(),
        "a list of static tokens": f"{STATIC},{STATIC}",
        "a made-up token of the command": "dmcp_" + "A" * 43,
        "100 KB": "a" * 60_000,
        "letters that are no ASCII": "tökén-of-admin-0123456789abcdef",
    }


def test_no_forged_token_lets_anybody_in(target: Target, issuer: OidcProvider) -> None:
    assert begin(target, bearer(mint(issuer, target))).status == 200
    let_in = {
        name
        for name, token in forged(issuer, target).items()
        if begin(target, bearer(token)).status not in (400, 401)
    }
    assert let_in == set()


def test_no_refusal_repeats_a_token_or_says_which_part_of_it_was_right(target: Target, issuer: OidcProvider) -> None:
    answers = [begin(target, bearer(token)) for token in (STATIC[:-1], STATIC + "f", "wholly-wrong-0123456789")]
    assert len({answer.body for answer in answers}) == 1
    assert all(STATIC[:-1] not in f"{answer}" for answer in answers)
    assert STATIC[:-1] not in target.log()


PLACES = {
    "no header": [],
    "an empty header": ["Authorization:"],
    "no scheme": [f"Authorization: {STATIC}"],
    "another scheme": [f"Authorization: Basic {STATIC}"],
    "a token of a proxy": [f"Proxy-Authorization: Bearer {STATIC}"],
    "a header of its own": [f"X-Api-Key: {STATIC}"],
    "a cookie": [f"Cookie: token={STATIC}; access_token={STATIC}"],
    "a name of a reverse proxy": ["X-Forwarded-User: admin", "X-Forwarded-Groups: all"],
    "the address of a reverse proxy": [
        "X-Forwarded-For: 127.0.0.1",
        "Forwarded: for=127.0.0.1",
        "X-Real-IP: 127.0.0.1",
    ],
    "two tokens": [bearer(STATIC), bearer("wrong-token-0123456789abcdef")],
    "two tokens in the other order": [bearer("wrong-token-0123456789abcdef"), bearer(STATIC)],
    "an underscore for a hyphen": [f"Authorization_: Bearer {STATIC}"],
}


@pytest.mark.parametrize("lines", PLACES.values(), ids=PLACES)
def test_a_credential_that_is_not_alone_in_its_header_lets_nobody_in(target: Target, lines: list[str]) -> None:
    assert begin(target, *lines).status in (400, 401)


@pytest.mark.parametrize("query", ["access_token", "token", "authorization", "session_id"])
def test_a_token_in_the_query_lets_nobody_in(target: Target, query: str) -> None:
    assert begin(target, path=f"/mcp?{query}={STATIC}").status == 401
    assert STATIC not in target.log()


@pytest.mark.parametrize("path", ["/mcp", "/mcp/office", "/mcp/none", "/sse", "/messages/", "/mcp/profile/none"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
def test_a_stranger_cannot_tell_what_there_is(target: Target, method: str, path: str) -> None:
    answer = target.request(method, path, BOTH, AS_JSON, body=INITIALIZE if method == "POST" else b"")
    assert answer.status in (401, 404, 405)
    assert "office" not in answer.text


def test_only_health_and_ready_are_open_and_tell_no_names(target: Target) -> None:
    for path in ("/health", "/ready"):
        answer = target.request("GET", path)
        assert answer.status == 200
        assert "office" not in answer.text
        assert "admin" not in answer.text


def test_of_two_that_are_named_alike_only_the_named_one_has_the_role(target: Target, issuer: OidcProvider) -> None:
    before = len(target.journal())
    other = client_with(target, mint(issuer, target, sub="admin"))
    assert "office" not in json.dumps(other.request("tools/list"))
    assert other.call("office", "query")["result"]["isError"]
    assert target.journal()[before:] == []


@pytest.mark.parametrize("subject", ["token:admin", "local", "local:user", "token:admin\n", " admin", "all"])
def test_no_subject_of_a_signed_token_stands_for_somebody_else(
    target: Target, issuer: OidcProvider, subject: str
) -> None:
    answer = begin(target, bearer(mint(issuer, target, sub=subject)))
    if answer.status != 200:
        return
    client = client_with(target, mint(issuer, target, sub=subject))
    assert client.call("office", "query")["result"]["isError"]


def test_roles_that_a_token_claims_count_for_nothing_where_the_config_names_no_claim(
    target: Target, issuer: OidcProvider
) -> None:
    token = mint(issuer, target, sub="eve", roles=["all"], groups=["all"], scope="all", role="all")
    assert client_with(target, token).call("office", "query")["result"]["isError"]


def test_a_revoked_token_counts_no_more(target: Target) -> None:
    created = json.loads(target.run("token", "create", "--as", "admin", "--json").stdout)
    client = client_with(target, created["token"])
    assert target.run("token", "revoke", created["id"]).returncode == 0
    assert client.post(client.message("ping")).status == 401
    assert begin(target, bearer(created["token"])).status == 401
    kept = [path.read_bytes() for path in target.folder.rglob("*") if path.is_file()]
    assert not [each for each in kept if created["token"].encode() in each]


def test_a_config_whose_names_could_be_two_people_is_refused(target: Target) -> None:
    config = json.loads(target.config.read_text())
    config["settings"]["access"]["people"] = {"admin": ["all"]}
    file = target.folder / "plain-names.json"
    file.write_text(json.dumps(config))
    assert target.command("check", "-c", str(file)).returncode != 0
