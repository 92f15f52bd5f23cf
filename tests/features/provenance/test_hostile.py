"""Registries that answer with anything: one clear line, within bounds, and never a traceback."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.features.provenance.signatures import BadAttestation, SignedEnvelope, check_envelope
from tests.examples import examples
from tests.features.provenance.fake_packages import PUBLISHED, SLSA, FakePackages
from tests.features.provenance.looking import fake, look, texts, worries
from tests.features.provenance.signing import Authority, Json, bundle, slsa, state

__all__ = ["fake"]

NAME = "@acme/weather"
DEEP = b'{"versions":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LINES = {"npm": f"npx {NAME}", "pypi": "uvx mcp-weather"}
PATHS = {"npm": f"/{NAME}", "pypi": "/simple/mcp-weather/"}


def is_plain(text: str) -> bool:
    return text.isprintable() and len(text) < 1500


@pytest.mark.parametrize("kind", ["npm", "pypi"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"\xff\xfe",
        DEEP,
        b'{"versions": 1, "files": 1}',
        b'{"versions": {"1.0.0": {"dist": []}}, "dist-tags": {"latest": "1.0.0"}, "files": [{"filename": 5}]}',
        b'{"versions": {"1.0.0": {"dist": {"signatures": [{"sig": 1}]}}}, "files": [{}]}',
    ],
)
async def test_rubbish_is_one_line_that_says_what_could_not_be_asked(
    fake: FakePackages, kind: str, body: bytes
) -> None:
    fake.answer(PATHS[kind], body)
    (finding,) = await look(fake, LINES[kind])
    assert finding.level in (Level.NOTE, Level.WARNING)
    assert is_plain(finding.what)


@pytest.mark.parametrize("kind", ["npm", "pypi"])
@pytest.mark.parametrize("status", [301, 401, 403, 429, 500, 999])
async def test_a_status_is_said(fake: FakePackages, kind: str, status: int) -> None:
    fake.answer(PATHS[kind], {}, status, location="http://169.254.169.254/")
    (note,) = texts(await look(fake, LINES[kind]), Level.NOTE)
    assert f"answers with status {status}" in note
    assert fake.requests == [f"GET {PATHS[kind]}"]


async def test_compressed_and_huge_answers_are_refused(fake: FakePackages) -> None:
    fake.answer(PATHS["npm"], {}, content_encoding="gzip")
    fake.answer(PATHS["pypi"], b" " * (25 << 20))
    compressed, huge = texts(await look(fake, LINES["npm"], LINES["pypi"]), Level.NOTE)
    assert "it is compressed" in compressed
    assert "more than 24 MiB" in huge


async def test_a_registry_that_never_answers_ends_after_its_time(fake: FakePackages) -> None:
    fake.delayed.add(PATHS["npm"])
    (note,) = texts(await look(fake, LINES["npm"], within_s=0.05), Level.NOTE)
    assert note.endswith("not all registries answered within 0.05 s")


async def test_packages_that_could_not_be_asked_for_one_reason_are_one_line(fake: FakePackages) -> None:
    lines = [f"npx package-{number}" for number in range(20)]
    (finding,) = await look(fake, *lines, npm_config_registry="http://127.0.0.1:1")
    assert finding.where == "mcpServers"
    assert finding.what.startswith("where 20 packages come from could not be asked: `127.0.0.1` refuses")


async def test_names_with_escapes_and_other_directions_are_shown_without_them(fake: FakePackages) -> None:
    evil = "\x1b]0;x\x07\u202e\u200b\nok"
    fake.publish_npm(NAME, "1.0.0", publisher=evil, deprecated=evil, scripts={"install": evil})
    packument = json.loads(fake.find(f"/{NAME}")[1])
    packument["versions"][f"2.0.0{evil}"] = packument["versions"]["1.0.0"]
    packument["dist-tags"]["latest"] = f"2.0.0{evil}"
    fake.answer(f"/{NAME}", packument)
    for version in ("", "@1.0.0", "@9.9.9"):
        findings = await look(fake, f"npx {NAME}{version}")
        assert findings
        assert all(is_plain(each.what + each.hint) for each in findings)


async def test_an_attestation_with_claims_that_are_not_texts_is_checked_by_its_certificate(
    fake: FakePackages,
) -> None:
    digest = hashlib.sha512(f"{NAME}@1.0.0".encode()).hexdigest()
    predicates: tuple[Json, ...] = (None, [], {"buildDefinition": 5}, {"invocation": {"configSource": {"uri": []}}})
    for predicate in predicates:
        statement = state("x", {"sha512": digest}, SLSA, predicate)
        made = fake.attest(NAME, "1.0.0")
        signer = fake.authority.signer()
        made["attestations"][0]["bundle"] = bundle(signer, statement)
        fake.publish_npm(NAME, "1.0.0", provenance=made)
        findings = await look(fake, f"npx {NAME}")
        assert worries(findings) == []
        assert "attested to be built from `https://github.com/acme/weather`" in texts(findings, Level.OK)[0]


# JSON of any shape, with the names that answers have.
_WORDS = """
versions time dist-tags latest 1.0.0 dist integrity signatures sig keyid files filename hashes attestations bundle
predicateType https://slsa.dev/provenance/v1 verificationMaterial certificate rawBytes dsseEnvelope payload
payloadType keys key expires SHA256:fake attestation_bundles publisher envelope statement signature
verification_material manifests artifactType token
"""
NAMES = st.sampled_from(_WORDS.split())
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", ["npm", "pypi"])
async def test_json_of_any_shape_has_plain_findings(fake: FakePackages, kind: str) -> None:
    loop = asyncio.get_running_loop()

    @examples(150)
    @given(ANY)
    def answer(value: object) -> None:
        fake.answer(PATHS[kind], value)
        findings = asyncio.run_coroutine_threadsafe(look(fake, LINES[kind]), loop).result(60)
        assert findings
        assert all(is_plain(each.what + each.hint) for each in findings)

    await asyncio.to_thread(answer)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (LINES["npm"], f"/-/npm/v1/attestations/{NAME}@1.0.0"),
        (LINES["npm"], "/-/npm/v1/keys"),
        (LINES["pypi"], "/integrity/mcp-weather/1.0.0/mcp_weather-1.0.0-py3-none-any.whl/provenance"),
        ("docker run -i {host}/acme/weather", f"/v2/acme/weather/referrers/sha256:{'ab' * 32}"),
        ("docker run -i {host}/acme/closed", "/token"),
    ],
)
async def test_what_vouches_may_have_any_shape(fake: FakePackages, line: str, path: str) -> None:
    fake.publish_npm(NAME, "1.0.0", is_attested=True)
    fake.publish_pypi("mcp-weather", "1.0.0", is_attested=True)
    fake.answer("/v2/acme/weather/manifests/latest", {}, docker_content_digest=f"sha256:{'ab' * 32}")
    challenge = f'Bearer realm="{fake.url}/token"'
    fake.answer("/v2/acme/closed/manifests/latest", {}, 401, www_authenticate=challenge)
    loop = asyncio.get_running_loop()

    @examples(100)
    @given(ANY)
    def answer(value: object) -> None:
        fake.answer(path, value)
        looked = look(fake, line.format(host=fake.host))
        findings = asyncio.run_coroutine_threadsafe(looked, loop).result(60)
        assert findings
        assert all(is_plain(each.what + each.hint) for each in findings)

    await asyncio.to_thread(answer)


AUTHORITY = Authority()
SIGNER = AUTHORITY.signer()
STATEMENT = state("x", {"sha256": "ab" * 32}, PUBLISHED, slsa())
MEMBERS = ("payload", "signature", "certificate")
GOOD = SignedEnvelope(STATEMENT, SIGNER.sign(STATEMENT), SIGNER.certificate)


@examples(300)
@given(st.sampled_from(MEMBERS), st.integers(min_value=0), st.binary(max_size=8))
@example("certificate", 15, b"\x80")  # the sign of its serial number
def test_no_change_of_an_envelope_goes_unnoticed(member: str, place: int, data: bytes) -> None:
    good = getattr(GOOD, member)
    at = place % (len(good) + 1)
    changed = good[:at] + data + good[at + len(data) :]
    envelope = SignedEnvelope(*(changed if each == member else getattr(GOOD, each) for each in MEMBERS))
    if changed == good:
        assert check_envelope(envelope, {"sha256": "ab" * 32}, AUTHORITY.pem).is_from_sigstore
        return
    try:
        statement = check_envelope(envelope, {"sha256": "ab" * 32}, AUTHORITY.pem)
    except BadAttestation:
        return
    assert member == "certificate"  # its key may be the same in one that the authority did not issue
    assert not statement.is_from_sigstore
