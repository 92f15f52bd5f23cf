"""The ready sets of what is replaced: what they find, and what they leave alone."""

from __future__ import annotations

import base64
import json

import pytest
from msgspec import Raw

from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.redaction.presets import PRESETS
from dynamic_mcp.features.redaction.redactor import Redactor

# Written in parts, so that nobody takes them for secrets that were lost here.
LETTERS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY" * 3
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7"
PEM = "-----BEGIN {0}PRIVATE KEY-----\n" + PEM_BODY + "\n-----END {0}PRIVATE KEY-----"
BASIC = base64.b64encode(b"ann:hunter2").decode()
JWT = ".".join(("ey" + "JhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxIn0", LETTERS[:20]))

FOUND = {
    "keys": [
        ("<{}>", PEM.format("")),
        ("<{}>", PEM.format("RSA ")),
        ("<{}>", PEM.format("OPENSSH ")),
        ("<{}>", PEM.format("EC ").replace("\nMII", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n\nMII")),
        ("key: {}", PEM.format("").split("\n-----END")[0]),
        ("key: {}", PEM.format("").replace("\n", "\\n")),
        ("id {} of", "AKIA" + "IOSFODNN7EXAMPLE"),
        ("{}", "ghp_" + LETTERS[:36]),
        ("push with {}.", "github_pat_" + LETTERS[:60]),
        ("{}", "glpat-" + LETTERS[:20]),
        ("{}", "sk-proj-" + LETTERS[:40]),
        ("{}", "sk-ant-api03-" + LETTERS[:40]),
        ("{}", "sk-" + LETTERS[:48]),
        ("{}", "sk_live_" + LETTERS[:24]),
        ("{}", "xoxb-" + "123456789012-" + LETTERS[:24]),
        ("{}", "AIza" + LETTERS[:35]),
        ("{}", "npm_" + LETTERS[:36]),
        ("{}", "pypi-" + LETTERS[:60]),
        ("{}", "hf_" + LETTERS[:34]),
        ("{}", "SG." + LETTERS[:22] + "." + LETTERS[:43]),
        ("aws_secret_access_key = {}", (LETTERS * 2)[:40]),
        ('{{"awsSecretAccessKey":"{}"}}', (LETTERS * 2)[:40]),
        ("AccountName=a;AccountKey={};x", LETTERS[:86] + "=="),
        ("https://hooks.slack.com/services/{}", "T00000000/B00000000/" + LETTERS[:24]),
    ],
    "tokens": [
        ("token {} is", JWT),
        ("Authorization: Bearer {}", LETTERS[:32]),
        ("curl -H 'authorization: bearer {}' x", LETTERS[:32]),
        ("Authorization: Basic {}", BASIC),
        ("basic {}", BASIC),
        ("Authorization: {}", LETTERS[:40]),
        ("X-Api-Key: {}", LETTERS[:20]),
        ("Authorization: Bearer {}", "abcdefghijkl"),
        ("authorization: bearer {},", "tok"),
        ("Authorization: Token {}", "q"),
        ("X-Api-Key: {}", "s3cr3t"),
        ('{{"x-api-key": "{}"}}', "abc"),
        ('"x-auth-token": "{}"', LETTERS[:20]),
        ("Set-Cookie: {}", "session=" + LETTERS[:20] + "; HttpOnly"),
        ("postgres://ann:{}@db.example/x", "hunter2"),
        ("https://:{}@example.com/", "hunter2"),
        ("https://a.example/?x=1&access_token={}&y=2", LETTERS[:20]),
        ("https://a.example/#id_token={}", LETTERS[:20]),
        ("https://s3.example/k?X-Amz-Signature={}", "0123456789abcdef" * 4),
    ],
    "emails": [
        ("write to {}.", "ann.lee+news@mail.example.com"),
        ("<{}>", "o'neil@example.co.uk"),
        ("mailto:{}?subject=x", "a@example.org"),
    ],
    "card_numbers": [
        ("card {},", "4111111111111111"),
        ("card {} ok", "4111 1111 1111 1111"),
        ("card {} 123", "5555-5555-5555-4444"),
        ("{}", "378282246310005"),
        ("{}", "3782 822463 10005"),
        ("{}", "6011111111111117"),
        ("{}", "30569309025904"),
        ("{}", "3530111333300000"),
        ("paid with {}.", "4000056655665556"),
    ],
}
LEFT = {
    "keys": [
        "a file that begins with -----BEGIN PRIVATE KEY----- is a key",
        "-----BEGIN PUBLIC KEY-----\n" + PEM_BODY + "\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + PEM_BODY + "\n-----END CERTIFICATE-----",
        "pk_live_" + LETTERS[:24],
        "class sk-loading-indicator-animation-container",
        "task-" + LETTERS[:32],
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256:" + "0123456789abcdef" * 4,
        "123e4567-e89b-12d3-a456-426614174000",
        "ghp_short, AKIA, AIza and npm_config_registry",
        "SKU12345678901234567890123456789012",
    ],
    "tokens": [
        "a bearer token, or bearer authentication-mechanism-for-clients",
        "basic troubleshooting and basic authentication",
        "Authorization: see the manual",
        "cookie: chocolate chips",
        "https://example.com/a:b@c?page=2&sort=name",
        "https://example.com:8080/",
        "git clone ssh://git@example.com/x.git",
        "?token=1&key=name",
        "eyJ is how each of them begins",
        "see key=value and a.b.c",
    ],
    "emails": [
        "git@github.com:owner/name.git",
        "npm i left-pad@1.0.0-beta.next @scope/name@latest",
        "logo@2x.png icon@large.svg",
        "https://user@example.com/",
        "@someone, a@b, x @ y.com, me@localhost",
        "SELECT @@version",
    ],
    "card_numbers": [
        "4111111111111112",
        "1700000000000 1700000000000000 20240131123456789",
        "0.4111111111111111 and 4111111111111111.5",
        "id-4111111111111111-x",
        "x4111111111111111",
        "41111111111111110000000000",
        "0000 0000 0000 0000",
        "123e4567-e89b-4111-1111-111111111111",
        "+49 170 1234567, 192.168.100.100",
    ],
}


def redact(text: str, *presets: str) -> str:
    redactor = Redactor([Redact("r", presets=presets, replacement="[x]")])
    given = Raw(json.dumps({"content": [{"type": "text", "text": text}]}).encode())
    found: str = json.loads(bytes(redactor.redact_answer(None, given)))["content"][0]["text"]
    return found


def test_every_preset_is_tried_here() -> None:
    assert FOUND.keys() == LEFT.keys() == PRESETS.keys()


@pytest.mark.parametrize(
    ("preset", "around", "secret"), [(name, *each) for name, found in FOUND.items() for each in found]
)
def test_secrets_are_replaced_and_what_is_around_them_stays(preset: str, around: str, secret: str) -> None:
    assert redact(around.format(secret), preset) == around.format("[x]")
    assert redact(f"{around.format(secret)}\n{around.format(secret)}", preset).count("[x]") == 2
    assert secret not in redact(around.format(secret), *PRESETS)


@pytest.mark.parametrize(("preset", "text"), [(name, text) for name, texts in LEFT.items() for text in texts])
def test_what_only_looks_similar_stays(preset: str, text: str) -> None:
    assert redact(text, preset) == text


@pytest.mark.parametrize(("preset", "text"), [(name, text) for name in PRESETS for text in LEFT[name]])
def test_what_was_replaced_stays_as_it_is(preset: str, text: str) -> None:
    once = redact(text, preset)
    assert redact(once, preset) == once
