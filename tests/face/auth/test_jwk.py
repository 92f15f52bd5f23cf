"""Which entries of a key set are keys, and what they have signed."""

from __future__ import annotations

import base64
import subprocess
import sys
from typing import Any, get_args, get_type_hints

import pytest

from dynamic_mcp.config.auth import Jwt
from dynamic_mcp.config.resolved import OAuth
from dynamic_mcp.web.jwk import import_keys
from dynamic_mcp.web.signed_token import ALGORITHMS
from tests.signing_keys import key_for, public_jwk, sign

Json = Any  # whatever JSON a test writes down

GOOD = public_jwk(key_for("RS256"), kid="good")


@pytest.mark.parametrize(
    ("jwk", "algorithms"),
    [
        (GOOD, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ({**GOOD, "alg": "PS256"}, {"PS256"}),
        ({**GOOD, "key_ops": ["verify"]}, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ({**GOOD, "x5c": ["nonsense"], "more": 1}, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (public_jwk(key_for("ES256")), {"ES256"}),
        (public_jwk(key_for("ES512")), {"ES512"}),
        (public_jwk(key_for("EdDSA")), {"EdDSA", "Ed25519"}),
        (public_jwk(key_for("EdDSA"), alg="Ed25519"), {"EdDSA", "Ed25519"}),
    ],
)
def test_what_a_key_is_for_follows_from_the_key(jwk: Json, algorithms: set[str]) -> None:
    (key,) = import_keys({"keys": [jwk]})

    assert key.algorithms == frozenset(algorithms)


@pytest.mark.parametrize(
    "jwk",
    [
        {**GOOD, "use": "enc"},
        {**GOOD, "key_ops": ["encrypt"]},
        {**GOOD, "alg": "RSA-OAEP"},
        {**GOOD, "alg": "HS256"},
        {**GOOD, "alg": "none"},
        {**GOOD, "kid": 5},
        {**GOOD, "n": GOOD["n"][:300]},
        {**GOOD, "n": GOOD["n"] * 8},
        {**GOOD, "n": "not base64"},
        {**GOOD, "n": None},
        {**GOOD, "e": "AQ"},
        {**GOOD, "e": GOOD["n"]},
        {"kty": "RSA"},
        {**public_jwk(key_for("ES256")), "crv": "secp256k1"},
        {**public_jwk(key_for("ES256")), "crv": "P-384"},
        {**public_jwk(key_for("ES256")), "alg": "ES384"},
        {**public_jwk(key_for("ES256")), "y": "AAAA"},
        {**public_jwk(key_for("EdDSA")), "crv": "X25519"},
        {**public_jwk(key_for("EdDSA")), "x": "AAAA"},
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {},
        5,
        None,
    ],
)
def test_what_is_no_key_for_signatures_is_left_out(jwk: Json) -> None:
    assert [key.kid for key in import_keys({"keys": [jwk, GOOD]})] == ["good"]
    with pytest.raises(ValueError, match="no usable key"):
        import_keys({"keys": [jwk]})


def test_a_key_checks_nothing_by_an_algorithm_that_it_is_not_for() -> None:
    (key,) = import_keys({"keys": [{**GOOD, "alg": "PS256"}]})
    for algorithm, is_signed in (("PS256", True), ("RS256", False), ("PS384", False)):
        content, _, signature = sign({"alg": algorithm}, {}, key_for("RS256")).rpartition(".")
        signed = base64.urlsafe_b64decode(f"{signature}==")
        assert key.has_signed(algorithm, content.encode(), signed) is is_signed
    for algorithm in ("HS256", "none", "ES256", "unknown"):
        assert not key.has_signed(algorithm, b"x", b"")


@pytest.mark.parametrize(
    ("algorithm", "jwk", "content", "signature"),
    [
        (
            "ES256",  # RFC 7515, appendix A.3
            {
                "kty": "EC",
                "crv": "P-256",
                "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            },
            (
                "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
                "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
            ),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
        (
            "EdDSA",  # RFC 8037, appendices A.4 and A.5
            {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ),
    ],
)
def test_the_examples_of_the_standards_are_signed(algorithm: str, jwk: Json, content: str, signature: str) -> None:
    (key,) = import_keys({"keys": [jwk]})
    signed = base64.urlsafe_b64decode(f"{signature}==")

    assert key.has_signed(algorithm, content.encode(), signed)
    assert not key.has_signed(algorithm, content.encode() + b"A", signed)


def test_every_algorithm_that_a_config_can_name_is_one_of_a_key() -> None:
    known = {each for algorithms in ALGORITHMS.values() for each in algorithms}
    (accepted,) = get_args(get_type_hints(Jwt)["algorithms"])[:1]
    signing = get_type_hints(OAuth)["private_key_alg"]

    for names in (get_args(accepted), [each for kind in get_args(signing) for each in get_args(kind)]):
        assert names
        assert known.issuperset(names)


def test_a_key_set_is_read_up_to_a_bound() -> None:
    assert len(import_keys({"keys": [GOOD] * 5000})) == 100


def test_what_checks_signatures_comes_with_the_first_token_only() -> None:
    heavy = ("joserfc", "httpx2", "cryptography")
    program = f"import sys, dynamic_mcp.face.auth.make; print([m for m in {heavy} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
