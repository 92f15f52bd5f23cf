"""Images: the digest of a tag, and what their registry has beside them."""

from __future__ import annotations

from dynamic_mcp.doctor.findings import Level
from tests.features.provenance.fake_packages import FakePackages
from tests.features.provenance.looking import fake, look, texts, worries

__all__ = ["fake"]

DIGEST = f"sha256:{'ab' * 32}"
PATH = "/v2/acme/weather"


def publish(fake: FakePackages, tag: str = "latest") -> None:
    fake.answer(f"{PATH}/manifests/{tag}", {}, docker_content_digest=DIGEST)


async def test_a_tag_is_resolved_and_a_signature_is_said_to_be_there_and_not_checked(fake: FakePackages) -> None:
    publish(fake, "1.0")
    fake.answer(f"{PATH}/manifests/sha256-{'ab' * 32}.sig", {})
    kinds = ["application/vnd.dev.sigstore.bundle.v0.3+json", "application/x\x1b[31m\u202e"]
    fake.answer(f"{PATH}/referrers/{DIGEST}", {"manifests": [{"artifactType": each} for each in kinds]})
    findings = await look(fake, f"docker run -i --rm -e TOKEN {fake.host}/acme/weather:1.0 --flag")
    (fact,) = texts(findings, Level.OK)
    assert f"is now `{DIGEST}`; beside it in its registry: a signature of cosign, " in fact
    assert "a signature or an attestation of Sigstore, `application/x [31m`, not checked here" in fact
    assert worries(findings) == []


async def test_an_image_with_nothing_beside_it_is_said_to_have_none(fake: FakePackages) -> None:
    publish(fake, DIGEST)
    (fact,) = texts(await look(fake, f"podman run -i {fake.host}/acme/weather@{DIGEST}"), Level.OK)
    assert fact.endswith(f"is `{DIGEST}`; nothing beside it vouches for it")


async def test_a_token_for_anyone_is_fetched_where_the_registry_says(fake: FakePackages) -> None:
    publish(fake)
    fake.token = "t0ken"
    fake.answer("/token", {"token": "t0ken"})
    (fact,) = texts(await look(fake, f"docker run {fake.host}/acme/weather"), Level.OK)
    assert DIGEST in fact
    assert "GET /token?scope=repository:acme/weather:pull&service=fake" in fake.requests


async def test_an_image_that_needs_a_login_could_not_be_asked(fake: FakePackages) -> None:
    publish(fake)
    fake.token = "t0ken"
    fake.answer("/token", {"token": "another"})
    (note,) = texts(await look(fake, f"docker run {fake.host}/acme/weather"), Level.NOTE)
    assert note.endswith("lets nobody read it without a login")


async def test_a_realm_elsewhere_than_a_registry_may_lead_is_not_asked(fake: FakePackages) -> None:
    realm = "http://169.254.169.254/latest"
    fake.answer(f"{PATH}/manifests/latest", {}, 401, www_authenticate=f'Bearer realm="{realm}"')
    (note,) = texts(await look(fake, f"docker run {fake.host}/acme/weather"), Level.NOTE)
    assert "169.254.169.254" in note
    assert "is not https" in note


async def test_an_unknown_image_is_a_warning(fake: FakePackages) -> None:
    (worry,) = worries(await look(fake, f"docker run {fake.host}/acme/weather"))
    assert worry == f"`{fake.host}` has no image `{fake.host}/acme/weather`"
