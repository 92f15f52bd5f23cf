"""Packages of npm: their versions, the registry's signatures, and attestations of where they were built.

https://docs.npmjs.com/about-registry-signatures, https://docs.npmjs.com/generating-provenance-statements, and
https://github.com/npm/registry/blob/main/docs/responses/package-metadata.md
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import quote

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from dynamic_mcp.features.provenance.asking import NotAnswered, Registries, decode_answer
from dynamic_mcp.features.provenance.packages import PackageUse
from dynamic_mcp.features.provenance.records import (
    Attested,
    CheckState,
    PackageRecord,
    Release,
    SignatureCheck,
    parse_time,
)
from dynamic_mcp.features.provenance.signatures import (
    BadAttestation,
    RegistryKey,
    SignedEnvelope,
    SignedStatement,
    check_envelope,
    check_registry_signature,
    decode_base64,
)
from dynamic_mcp.features.provenance.sources import PackageSource

EARLIER = 10
_INSTALL_SCRIPTS = ("preinstall", "install", "postinstall")
_PROVENANCE = "https://slsa.dev/provenance/"
_MOST_ATTESTATIONS = 20
_MOST_KEYS = 20
_PRERELEASE = re.compile(r"v?[\d.]+-")


class _Signature(Struct, frozen=True):
    keyid: str = ""
    sig: str = ""


class _Distribution(Struct, frozen=True):
    integrity: str = ""
    signatures: tuple[_Signature, ...] = ()
    attestations: object = None


class _Manifest(Struct, frozen=True):
    distribution: _Distribution = field(default=_Distribution(), name="dist")
    deprecated: object = None
    scripts: object = None
    publisher: object = field(default=None, name="_npmUser")
    maintainers: object = None


class _Packument(Struct, frozen=True):
    tags: Mapping[str, object] = field(default_factory=dict, name="dist-tags")
    versions: Mapping[str, Raw] = field(default_factory=dict)
    time: Mapping[str, object] = field(default_factory=dict)


class _Attestation(Struct, frozen=True):
    bundle: Mapping[str, object]
    kind: str = field(default="", name="predicateType")


class _Attestations(Struct, frozen=True):
    attestations: tuple[_Attestation, ...] = ()


class _Key(Struct, frozen=True):
    keyid: str = ""
    key: str = ""
    expires: object = None


class _Keys(Struct, frozen=True):
    keys: tuple[_Key, ...] = ()


async def look_up_npm(
    registries: Registries,
    use: PackageUse,
    source: PackageSource,
    *,
    authorities: bytes | None = None,
) -> PackageRecord:
    """Return what a registry says of a package. Raises NotAnswered."""
    record = PackageRecord(use=use, registry=source.url)
    body = await registries.ask(source, f"/{quote(use.name, safe='@')}")
    if body is None:
        return replace(record, is_missing=True)
    packument = decode_answer(body, _Packument, source)
    if not packument.versions:
        return replace(record, is_missing=True)
    times = {version: parse_time(packument.time.get(version)) for version in packument.versions}
    version, newest = _choose(use, packument, times)
    is_exact = bool(use.version) or use.wanted in ("", *packument.tags)
    record = replace(record, newest=newest, is_exact=is_exact, first_published=_first(packument, times))
    if version not in packument.versions:
        return replace(record, lacks_version=True)
    manifests = {
        each: decode_answer(packument.versions[each], _Manifest, source)
        for each in (version, *_before(version, times)[:EARLIER])
    }
    releases = [_release(each, manifest, times[each]) for each, manifest in manifests.items()]
    record = replace(record, release=releases[0], earlier=tuple(releases[1:]))
    return await _check(registries, record, manifests, source, authorities)


async def _check(
    registries: Registries,
    record: PackageRecord,
    manifests: Mapping[str, _Manifest],
    source: PackageSource,
    authorities: bytes | None,
) -> PackageRecord:
    release = record.release
    assert release is not None
    manifest = manifests[release.version]
    attested: tuple[Attested, ...] = ()
    before: tuple[Attested, ...] = ()
    signature, notes = SignatureCheck(), list[str]()
    try:
        if release.is_attested:
            attested = await _read_attestations(
                registries, record.use, release.version, manifest, source, authorities
            )
            earlier = next((each for each in record.earlier if each.is_attested), None)
            if earlier is not None:
                before = await _read_attestations(
                    registries, record.use, earlier.version, manifests[earlier.version], source, authorities
                )
        signature = await _check_signature(registries, record, manifest.distribution, source)
    except NotAnswered as exc:
        notes.append(str(exc))
    return replace(record, attested=attested, attested_before=before, signature=signature, notes=tuple(notes))


def _choose(use: PackageUse, packument: _Packument, times: Mapping[str, datetime | None]) -> tuple[str, str]:
    """Return the version to look at, and the newest. Of a range, the newest version counts."""
    latest = packument.tags.get("latest")
    dated = {each: when for each, when in times.items() if when is not None}
    newest = latest if isinstance(latest, str) else max(dated, key=lambda each: dated[each], default="")
    tagged = packument.tags.get(use.wanted) if use.wanted else None
    return use.version or (tagged if isinstance(tagged, str) else newest), newest


def _first(packument: _Packument, times: Mapping[str, datetime | None]) -> datetime | None:
    created = parse_time(packument.time.get("created"))
    return min((each for each in (created, *times.values()) if each is not None), default=None)


def _before(version: str, times: Mapping[str, datetime | None]) -> list[str]:
    """Return the versions that were published before one, the latest first; previews only before a preview."""
    moment = times[version]
    if moment is None:
        return []
    may_be_preview = _PRERELEASE.match(version) is not None
    found = [
        (when, each)
        for each, when in times.items()
        if each != version and when is not None and when < moment and (may_be_preview or not _PRERELEASE.match(each))
    ]
    return [each for _, each in sorted(found, reverse=True)]


def _release(version: str, manifest: _Manifest, published: datetime | None) -> Release:
    scripts = manifest.scripts if isinstance(manifest.scripts, dict) else {}
    deprecated = manifest.deprecated
    is_deprecated = isinstance(deprecated, str) and bool(deprecated)
    return Release(
        version=version,
        published=published,
        publisher=_name_of(manifest.publisher),
        maintainers=tuple(_names_of(manifest.maintainers)),
        is_by_workflow=isinstance(manifest.publisher, dict) and bool(manifest.publisher.get("trustedPublisher")),
        is_attested=isinstance(manifest.distribution.attestations, dict),
        scripts=tuple(f"{name}: {scripts[name]}" for name in _INSTALL_SCRIPTS if isinstance(scripts.get(name), str)),
        withdrawn=f"deprecated: {deprecated}" if is_deprecated else "deprecated" if deprecated is True else "",
    )


def _name_of(person: object) -> str:
    if isinstance(person, str):
        return person.partition("<")[0].strip()
    name = person.get("name") if isinstance(person, dict) else None
    return name if isinstance(name, str) else ""


def _names_of(people: object) -> Iterator[str]:
    yield from filter(None, map(_name_of, people[:1000] if isinstance(people, list) else ()))


async def _read_attestations(
    registries: Registries,
    use: PackageUse,
    version: str,
    manifest: _Manifest,
    source: PackageSource,
    authorities: bytes | None,
) -> tuple[Attested, ...]:
    """Return the attestations of where a version was built. Raises NotAnswered."""
    path = f"/-/npm/v1/attestations/{quote(use.name, safe='@')}@{quote(version, safe='')}"
    body = await registries.ask(source, path)
    if body is None:
        raise NotAnswered("the registry announces an attestation, and does not have it")
    answer = decode_answer(body, _Attestations, source)
    found = [each for each in answer.attestations[:_MOST_ATTESTATIONS] if each.kind.startswith(_PROVENANCE)]
    return tuple(_judge(each, manifest.distribution.integrity, authorities) for each in found)


def _judge(attestation: _Attestation, integrity: str, authorities: bytes | None) -> Attested:
    try:
        digests = _digests_of(integrity)
        statement = check_envelope(_envelope_of(attestation.bundle), digests, authorities)
        if not statement.kind.startswith(_PROVENANCE):
            raise BadAttestation("what is signed does not say where the package was built")
        claims = _claims_of(statement.body)
        _compare(statement, claims)
    except BadAttestation as exc:
        return Attested(state=CheckState.FAILED, flaw=str(exc))
    return statement.describe()


def _digests_of(integrity: str) -> Mapping[str, str]:
    """Return the digests in a text such as `sha512-…`, in hex (Subresource Integrity). Raises BadAttestation."""
    found = {}
    for word in integrity.split()[:10]:
        name, _, text = word.partition("-")
        if name in ("sha512", "sha384", "sha256"):
            try:
                found[name] = base64.b64decode(text.partition("?")[0], validate=True).hex()
            except binascii.Error:
                continue
    if not found:
        raise BadAttestation("the registry names no digest of the package that it could be about")
    return found


def _envelope_of(bundle: Mapping[str, object]) -> SignedEnvelope:
    """Return the envelope of a bundle of Sigstore, of any version. Raises BadAttestation."""
    material, envelope = _member(bundle, "verificationMaterial"), _member(bundle, "dsseEnvelope")
    chain = _member(material, "x509CertificateChain").get("certificates")
    first = chain[0] if isinstance(chain, list) and chain else material.get("certificate")
    signatures = envelope.get("signatures")
    signature = signatures[0] if isinstance(signatures, list) and signatures else None
    kind = envelope.get("payloadType")
    if not isinstance(first, dict) or not isinstance(signature, dict) or not isinstance(kind, str):
        raise BadAttestation("it is no bundle with a certificate and a signature")
    return SignedEnvelope(
        payload=decode_base64(envelope.get("payload")),
        signature=decode_base64(signature.get("sig")),
        certificate=decode_base64(first.get("rawBytes")),
        payload_type=kind[:200],
    )


def _claims_of(body: Mapping[str, object]) -> dict[str, str]:
    """Return the repository, the commit and the workflow that SLSA provenance of version 1 or 0.2 names."""
    predicate = _member(body, "predicate")
    definition = _member(predicate, "buildDefinition")
    workflow = _member(_member(definition, "externalParameters"), "workflow")
    sources = definition.get("resolvedDependencies")
    first = sources[0] if isinstance(sources, list) and sources and isinstance(sources[0], dict) else {}
    older = _member(_member(predicate, "invocation"), "configSource")
    texts = {
        "repository": workflow.get("repository") or _repository_of(older.get("uri")),
        "commit": _member(first, "digest").get("gitCommit") or _member(older, "digest").get("sha1"),
        "workflow": workflow.get("path") or older.get("entryPoint"),
    }
    return {name: text if isinstance(text, str) else "" for name, text in texts.items()}


def _repository_of(uri: object) -> str:
    return uri.removeprefix("git+").partition("@")[0] if isinstance(uri, str) else ""


def _compare(statement: SignedStatement, claims: Mapping[str, str]) -> None:
    """Compare what a statement says with what its certificate does. Raises BadAttestation."""
    if not statement.repository:
        raise BadAttestation("its certificate does not say from which repository it is")
    vouched_for = (
        ("repository", statement.repository),
        ("commit", statement.commit),
        ("workflow", statement.workflow),
    )
    for what, vouched in vouched_for:
        if vouched and claims[what] and claims[what].rstrip("/").lower() != vouched.rstrip("/").lower():
            raise BadAttestation(f"it names another {what} than the certificate that signs it")


async def _check_signature(
    registries: Registries, record: PackageRecord, distribution: _Distribution, source: PackageSource
) -> SignatureCheck:
    """Check the signature of the registry itself. Raises NotAnswered."""
    if not distribution.signatures or not distribution.integrity:
        return SignatureCheck()
    body = await registries.ask(source, "/-/npm/v1/keys")
    if body is None:
        raise NotAnswered("the registry signs its packages, and does not publish its keys")
    keys = {each.keyid: each for each in decode_answer(body, _Keys, source).keys[:_MOST_KEYS]}
    known = [each for each in distribution.signatures[:_MOST_KEYS] if each.keyid in keys]
    if not known:
        return SignatureCheck(holds=False, flaw="it is by a key that the registry does not publish")
    release = record.release
    assert release is not None
    message = f"{record.use.name}@{release.version}:{distribution.integrity}"
    try:
        for each in known:
            key = keys[each.keyid]
            check_registry_signature(
                RegistryKey(decode_base64(key.key), parse_time(key.expires)),
                decode_base64(each.sig),
                message,
                release.published,
            )
    except BadAttestation as exc:
        return SignatureCheck(holds=False, flaw=str(exc))
    return SignatureCheck(holds=True)


def _member(value: object, name: str) -> Mapping[str, object]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, dict) else {}
