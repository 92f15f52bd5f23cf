"""Packages of npm: what the registry attests, what is checked here, and what has changed between versions."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from dynamic_mcp.doctor.findings import Level
from dynamic_mcp.features.provenance.signatures import load_authorities
from tests.features.provenance.fake_packages import SLSA, FakePackages, days_ago
from tests.features.provenance.looking import fake, look, texts, worries
from tests.features.provenance.signing import (
    COMMIT,
    REPOSITORY,
    WORKFLOW,
    Authority,
    SigningKey,
    bundle,
    npm_attestations,
    slsa,
    state,
)

__all__ = ["fake"]

NAME = "@acme/weather"


async def test_an_attested_version_is_checked_and_its_source_is_named(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", is_attested=True)
    findings = await look(fake, f"npx -y {NAME}@1.0.0")
    (fact,) = texts(findings, Level.OK)
    assert f"attested to be built from `{REPOSITORY}` (commit `{COMMIT[:12]}`" in fact
    assert "which was checked here" in fact
    assert "published 100 days ago by `ada`" in fact
    assert "signed by the registry, which was checked here with the keys that it publishes" in fact
    assert worries(findings) == []


async def test_the_older_bundles_of_npm_are_understood(fake: FakePackages) -> None:
    """With a chain of certificates, and SLSA provenance 0.2."""
    digest = hashlib.sha512(f"{NAME}@1.0.0".encode()).hexdigest()
    older = {"uri": f"git+{REPOSITORY}@refs/heads/main", "digest": {"sha1": COMMIT}, "entryPoint": WORKFLOW}
    predicate = {"invocation": {"configSource": older}}
    made = bundle(fake.authority.signer(), state("x", {"sha512": digest}, SLSA, predicate))
    material = made["verificationMaterial"]
    material["x509CertificateChain"] = {"certificates": [material.pop("certificate")]}
    kind = "https://slsa.dev/provenance/v0.2"
    fake.publish_npm(NAME, "1.0.0", provenance=npm_attestations([made], kind))
    findings = await look(fake, f"npx {NAME}")
    assert worries(findings) == []
    assert f"`{REPOSITORY}` (commit `{COMMIT[:12]}`, workflow `{WORKFLOW}`), which was checked" in findings[0].what


def test_the_certificates_of_sigstore_are_those_that_are_valid_until_2031() -> None:
    found = load_authorities()
    assert {each.subject.rfc4514_string() for each in found} == {
        "CN=sigstore,O=sigstore.dev",
        "CN=sigstore-intermediate,O=sigstore.dev",
    }
    _, intermediate, root = found
    intermediate.verify_directly_issued_by(root)
    assert {each.not_valid_after_utc.year for each in found} == {2031}


async def test_a_version_without_an_attestation_is_not_called_attested(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", is_signed=False)
    findings = await look(fake, f"npx {NAME}")
    (fact,) = texts(findings, Level.OK)
    assert "its registry has no attestation of where it was built" in fact
    assert "signed" not in fact
    assert "(the newest, since its entry names no version)" in fact
    assert worries(findings) == []


def other_digest(fake: FakePackages) -> Any:
    return fake.attest(NAME, "0.0.1")


def no_certificate_of_the_authority(fake: FakePackages) -> Any:
    return attested_by(fake, Authority("another"))


def attested_by(fake: FakePackages, authority: Authority, **signer: Any) -> Any:
    return npm_attestations([bundle(authority.signer(**signer), statement())])


def statement(repository: str = REPOSITORY, commit: str = COMMIT) -> bytes:
    digest = hashlib.sha512(f"{NAME}@1.0.0".encode()).hexdigest()
    return state(f"pkg:npm/{NAME}@1.0.0", {"sha512": digest}, SLSA, slsa(repository, commit))


def changed_payload(fake: FakePackages) -> Any:
    made = attested_by(fake, fake.authority)
    envelope = made["attestations"][0]["bundle"]["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"]).replace(b"acme", b"evil")
    envelope["payload"] = base64.b64encode(payload).decode()
    return made


def other_repository(fake: FakePackages) -> Any:
    signed = bundle(fake.authority.signer(repository="https://github.com/evil/weather"), statement())
    return npm_attestations([signed])


def other_commit(fake: FakePackages) -> Any:
    return npm_attestations([bundle(fake.authority.signer(), statement(commit="f" * 40))])


def other_workflow(fake: FakePackages) -> Any:
    return attested_by(fake, fake.authority, workflow=".github/workflows/other.yml")


def scan(fake: FakePackages) -> Any:
    """Return what a project has signed about a package that it has not built."""
    digest = hashlib.sha512(f"{NAME}@1.0.0".encode()).hexdigest()
    scanned = state("x", {"sha512": digest}, "https://in-toto.io/attestation/vulns/v0.2", {"result": "harmful"})
    return npm_attestations([bundle(fake.authority.signer(), scanned)])


def other_issuer(fake: FakePackages) -> Any:
    return attested_by(fake, fake.authority, issuer="https://oidc.codefresh.io")


def no_statement(fake: FakePackages) -> Any:
    signer, payload = fake.authority.signer(), statement()
    made = bundle(signer, payload)
    made["dsseEnvelope"] |= {
        "payloadType": "text/plain",
        "signatures": [{"sig": base64.b64encode(signer.sign(payload, "text/plain")).decode()}],
    }
    return npm_attestations([made])


def no_bundle(fake: FakePackages) -> Any:
    return {"attestations": [{"predicateType": SLSA, "bundle": {}}]}


def no_base64(fake: FakePackages) -> Any:
    made = attested_by(fake, fake.authority)
    made["attestations"][0]["bundle"]["dsseEnvelope"]["signatures"][0]["sig"] = "\u202e!"
    return made


def certificate_of_rubbish(fake: FakePackages) -> Any:
    made = attested_by(fake, fake.authority)
    made["attestations"][0]["bundle"]["verificationMaterial"]["certificate"]["rawBytes"] = "AAAA"
    return made


def silent_certificate(fake: FakePackages) -> Any:
    signer = fake.authority.signer(
        repository="https://github.com/evil/x", extensions={12: b"\x0c\x85garbage", 13: b"", 18: b"\x0c"}
    )
    return npm_attestations([bundle(signer, statement())])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (other_digest, "it is about another file: the digest that it names is not that of the package"),
        (changed_payload, "it was not signed by its certificate"),
        (other_repository, "it names another repository than the certificate that signs it"),
        (other_commit, "it names another commit than the certificate that signs it"),
        (other_workflow, "it names another workflow than the certificate that signs it"),
        (silent_certificate, "its certificate does not say from which repository it is"),
        (scan, "what is signed does not say where the package was built"),
        (other_issuer, "its certificate does not say from which repository it is"),
        (no_statement, "it signs something else than a statement"),
        (no_bundle, "it is no bundle with a certificate and a signature"),
        (no_base64, "it has something that is not base64"),
        (certificate_of_rubbish, "its certificate cannot be read"),
    ],
)
async def test_an_attestation_that_does_not_hold_is_an_error(fake: FakePackages, make: Any, why: str) -> None:
    fake.publish_npm(NAME, "1.0.0", provenance=make(fake))
    findings = await look(fake, f"npx {NAME}")
    (error,) = [each for each in findings if each.level is Level.ERROR]
    assert error.what == f"npm package `{NAME}` `1.0.0` has an attestation that does not hold: {why}"
    assert error.exit_code == 3
    assert "checked here;" not in error.what
    assert "attested to be built" not in " ".join(texts(findings, Level.OK))


@pytest.mark.parametrize("is_for_code", [True, False])
async def test_a_certificate_that_sigstore_did_not_issue_for_this_proves_nothing(
    fake: FakePackages, is_for_code: bool
) -> None:
    authority = Authority("another") if is_for_code else fake.authority
    fake.publish_npm(NAME, "1.0.0", provenance=attested_by(fake, authority, is_for_code=is_for_code))
    findings = await look(fake, f"npx {NAME}")
    (worry,) = worries(findings)
    assert worry.endswith("by a certificate that is not Sigstore's")
    assert "was checked here" not in texts(findings, Level.OK)[0].partition("; signed")[0]


async def test_a_signature_of_the_registry_that_does_not_hold_is_an_error(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0")
    other = SigningKey()
    fake.answer("/-/npm/v1/keys", {"keys": [other.publish()]})
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert worry.endswith("does not hold: the registry's signature is not by its key")
    fake.answer("/-/npm/v1/keys", {"keys": []})
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert worry.endswith("does not hold: it is by a key that the registry does not publish")


async def test_a_key_that_had_expired_at_the_publication_does_not_count(fake: FakePackages) -> None:
    fake.key = SigningKey(expires=days_ago(200))
    fake.publish_npm(NAME, "1.0.0", days=100)
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert "had expired when the version was published" in worry
    fake.publish_npm(NAME, "0.9.0", days=300)
    assert worries(await look(fake, f"npx {NAME}@0.9.0")) == []


async def test_a_version_that_is_not_attested_after_attested_ones_is_a_warning(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", days=90, is_attested=True)
    fake.publish_npm(NAME, "1.0.1", days=80)
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert worry == f"npm package `{NAME}` `1.0.1` is not attested, and `1.0.0` before it was"
    assert worries(await look(fake, f"npx {NAME}@1.0.0")) == []


async def test_a_version_from_another_repository_is_a_warning(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", days=90, is_attested=True)
    fake.publish_npm(NAME, "1.0.1", days=80, is_attested=True, repository="https://github.com/evil/weather")
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert "was built from `https://github.com/evil/weather`" in worry
    assert worry.endswith(f"and the attested version before it from `{REPOSITORY}`")


async def test_a_publisher_who_published_none_before_is_a_warning(fake: FakePackages) -> None:
    for number, publisher in enumerate(("ada", "bob", "ada")):
        fake.publish_npm(NAME, f"1.0.{number}", days=90 - number, publisher=publisher)
    assert worries(await look(fake, f"npx {NAME}")) == []
    fake.publish_npm(NAME, "1.1.0", days=50, publisher="eve", maintainers=("eve",))
    who, maintainers = worries(await look(fake, f"npx {NAME}"))
    assert who.endswith("was published by `eve`, who published none of the 3 versions before it")
    assert maintainers.endswith("has other maintainers than the version before it, and none of those")


async def test_a_login_in_place_of_a_workflow_is_a_warning_and_the_other_way_round_is_not(
    fake: FakePackages,
) -> None:
    fake.publish_npm(NAME, "1.0.0", days=90)
    fake.publish_npm(NAME, "1.0.1", days=80, is_by_workflow=True, is_attested=True)
    findings = await look(fake, f"npx {NAME}")
    assert worries(findings) == []
    assert texts(findings, Level.NOTE)[0].endswith("was published by a workflow of the project, for the first time")
    fake.publish_npm(NAME, "1.0.2", days=70, is_by_workflow=True, is_attested=True)
    assert [each.level for each in await look(fake, f"npx {NAME}")] == [Level.OK]
    fake.publish_npm(NAME, "1.0.3", days=60)
    lost, login = worries(await look(fake, f"npx {NAME}"))
    assert "is not attested, and `1.0.2` before it was" in lost
    assert login.endswith("by `ada` with a login, and the version before it by a workflow of the project")


async def test_a_workflow_that_nothing_attests_is_a_publisher_like_any_other(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", days=90)
    fake.publish_npm(NAME, "1.0.1", days=80, is_by_workflow=True)
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert worry.endswith("was published by `GitHub Actions`, who did not publish the version before it")


async def test_a_script_that_a_version_begins_to_run_is_a_warning(fake: FakePackages) -> None:
    scripts = {"postinstall": "node \x1b[31m\u202eevil.js", "test": "vitest"}
    fake.publish_npm(NAME, "1.0.0", days=90)
    fake.publish_npm(NAME, "1.0.1", days=80, scripts=scripts)
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert worry.endswith("`postinstall: node [31m evil.js`, which the version before it did not")
    fake.publish_npm(NAME, "1.0.2", days=70, scripts=scripts)
    findings = await look(fake, f"npx {NAME}")
    assert worries(findings) == []
    assert any("runs a script when it is installed" in each for each in texts(findings, Level.NOTE))


@pytest.mark.parametrize(
    ("days", "said"), [(0.5, "was first published 12 h ago"), (29, "was first published 29 days")]
)
async def test_a_new_package_is_a_warning(fake: FakePackages, days: float, said: str) -> None:
    fake.publish_npm(NAME, "1.0.0", days=days)
    (worry,) = worries(await look(fake, f"npx {NAME}"))
    assert said in worry


async def test_a_new_version_of_an_old_package_is_a_note(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", days=400)
    fake.publish_npm(NAME, "1.0.1", days=2)
    findings = await look(fake, f"npx {NAME}")
    assert worries(findings) == []
    assert texts(findings, Level.NOTE) == [f"npm package `{NAME}` `1.0.1` was published 2 days ago"]


async def test_deprecated_missing_and_unknown_are_told_apart(fake: FakePackages) -> None:
    fake.publish_npm("old", "1.0.0", deprecated="use \x1b]8;;evil\x07new")
    fake.publish_npm(NAME, "1.0.0")
    old, version, missing = worries(await look(fake, "npx old", f"npx {NAME}@9.9.9", "npx no-such"))
    assert old == "npm package `old` `1.0.0` is deprecated: use ]8;;evil new"
    assert version == f"`{fake.host}` has no version `9.9.9` of npm package `{NAME}`"
    assert missing.endswith("has no npm package `no-such`, so anyone may publish one of this name")


async def test_a_tag_is_followed_and_of_a_range_the_newest_counts(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "2.0.0-beta.1", days=90)
    fake.publish_npm(NAME, "1.0.0", days=80)
    packument = json.loads(fake.find(f"/{NAME}")[1])
    packument["dist-tags"]["next"] = "2.0.0-beta.1"
    fake.answer(f"/{NAME}", packument)
    tag, of_range = texts(await look(fake, f"npx {NAME}@next", f"npx {NAME}@^1"), Level.OK)
    assert "`2.0.0-beta.1`" in tag
    assert "`1.0.0` (the newest, since its entry asks for `^1`)" in of_range


async def test_a_registry_that_has_not_what_it_announces_is_a_note(fake: FakePackages) -> None:
    fake.publish_npm(NAME, "1.0.0", is_attested=True)
    fake.answer(f"/-/npm/v1/attestations/{NAME}@1.0.0", {}, 404)
    findings = await look(fake, f"npx {NAME}")
    assert worries(findings) == []
    (note,) = texts(findings, Level.NOTE)
    assert note.endswith("the registry announces an attestation, and does not have it")


async def test_only_the_login_of_the_registry_is_sent_and_only_to_it(fake: FakePackages, tmp_path: Any) -> None:
    fake.publish_npm(NAME, "1.0.0")
    file = tmp_path / "npmrc"
    file.write_text(f"//{fake.host}/:_authToken=${{SECRET}}\n//elsewhere.example/:_authToken=other\n")
    await look(fake, f"npx {NAME}", npm_config_userconfig=str(file), SECRET="s3cret")
    assert {each.get("authorization") for each in fake.headers} == {"Bearer s3cret"}
