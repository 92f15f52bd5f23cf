"""Packages of PyPI and other Python indexes, by the simple API, and their attestations.

https://packaging.python.org/en/latest/specifications/simple-repository-api/ (with PEP 691, 700 and 740), and
https://docs.pypi.org/attestations/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from dynamic_mcp.features.provenance.asking import NotAnswered, Registries, decode_answer
from dynamic_mcp.features.provenance.packages import PackageUse
from dynamic_mcp.features.provenance.records import Attested, CheckState, PackageRecord, Release, parse_time
from dynamic_mcp.features.provenance.signatures import (
    GITHUB_ISSUER,
    BadAttestation,
    SignedEnvelope,
    SignedStatement,
    check_envelope,
    decode_base64,
)
from dynamic_mcp.features.provenance.sources import PackageSource

EARLIER = 10
_SIMPLE = {"accept": "application/vnd.pypi.simple.v1+json"}
_INTEGRITY = {"accept": "application/vnd.pypi.integrity.v1+json, application/json"}
_MOST_ATTESTATIONS = 20
# Others are about a file, too, but do not say who has built or published it.
_KINDS = ("https://docs.pypi.org/attestations/publish/", "https://slsa.dev/provenance/")
# PEP 440, as far as it is needed to put versions in order.
_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<numbers>\d{1,20}(?:\.\d{1,20}){0,20})"
    r"(?P<pre>[._-]?(?:a|b|c|rc|alpha|beta|pre|preview)[._-]?\d*)?"
    r"(?:[._-]?(?:post|rev|r)[._-]?(?P<post>\d{0,20})|-(?P<post2>\d{1,20}))?"
    r"(?P<dev>[._-]?dev[._-]?\d*)?(?:\+[a-z0-9._-]+)?",
    re.IGNORECASE,
)
_ISSUERS = {
    "GitHub": ("https://github.com/", GITHUB_ISSUER),
    "GitLab": ("https://gitlab.com/", "https://gitlab.com"),
}


class _File(Struct, frozen=True):
    filename: str
    hashes: Mapping[str, object] = field(default_factory=dict)
    uploaded: object = field(default=None, name="upload-time")
    yanked: object = None
    provenance: object = None


class _Project(Struct, frozen=True):
    files: tuple[_File, ...] = ()


class _Publisher(Struct, frozen=True):
    kind: str = ""
    repository: object = None
    workflow: object = None
    workflow_filepath: object = None
    environment: object = None


class _Material(Struct, frozen=True):
    certificate: str = ""


class _Signed(Struct, frozen=True):
    statement: str = ""
    signature: str = ""


class _PyAttestation(Struct, frozen=True):
    envelope: _Signed
    verification_material: _Material


class _Bundle(Struct, frozen=True):
    publisher: _Publisher
    attestations: tuple[_PyAttestation, ...] = ()


class _Provenance(Struct, frozen=True):
    attestation_bundles: tuple[_Bundle, ...] = ()


async def look_up_pypi(
    registries: Registries,
    use: PackageUse,
    sources: Sequence[PackageSource],
    *,
    authorities: bytes | None = None,
) -> PackageRecord:
    """Return what the first index that has a package says of it. Raises NotAnswered."""
    name = re.sub(r"[-_.]+", "-", use.name).lower()
    for source in sources:
        body = await registries.ask(source, f"/{name}/", _SIMPLE)
        if body is not None:
            project = decode_answer(body, _Project, source)
            if project.files:
                return await _look(registries, use, source, _by_version(name, project), authorities)
    return PackageRecord(use=use, registry=sources[-1].url, is_missing=True)


async def _look(
    registries: Registries,
    use: PackageUse,
    source: PackageSource,
    versions: Mapping[str, list[_File]],
    authorities: bytes | None,
) -> PackageRecord:
    releases = {version: _release(version, files) for version, files in versions.items()}
    newest = _newest(releases)
    version = _find(use.version, releases) if use.version else newest
    dated = [each.published for each in releases.values() if each.published is not None]
    record = PackageRecord(
        use=use,
        registry=source.url,
        newest=newest,
        is_exact=bool(use.version) or use.wanted in ("", "@latest"),
        first_published=min(dated, default=None),
    )
    if version not in releases:
        return replace(record, lacks_version=True)
    release = releases[version]
    record = replace(record, release=release, earlier=tuple(_before(release, releases)[:EARLIER]))
    if not release.is_attested:
        return record
    try:
        attested = await _read_provenance(registries, source, versions[version], authorities)
        earlier = next((each for each in record.earlier if each.is_attested), None)
        before = () if earlier is None else versions[earlier.version]
        attested_before = await _read_provenance(registries, source, before, authorities) if before else ()
    except NotAnswered as exc:
        return replace(record, notes=(str(exc),))
    return replace(record, attested=attested, attested_before=attested_before)


def _by_version(name: str, project: _Project) -> dict[str, list[_File]]:
    found: dict[str, list[_File]] = {}
    for file in project.files:
        if version := _version_of(name, file.filename):
            found.setdefault(version, []).append(file)
    return found


def _version_of(name: str, filename: str) -> str:
    """Return the version in the name of a wheel or a source archive; empty for other files."""
    if filename.endswith(".whl"):
        parts = filename.split("-")
        return parts[1] if len(parts) >= 5 and _VERSION.fullmatch(parts[1]) else ""
    stem = re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", filename)
    if stem == filename:
        return ""
    words = "[-_.]+".join(map(re.escape, name.split("-")))
    head = re.match(f"{words}-", stem, re.IGNORECASE)
    version = stem[head.end() :] if head else ""
    return version if _VERSION.fullmatch(version) else ""


def _release(version: str, files: Sequence[_File]) -> Release:
    dates = [when for each in files if (when := parse_time(each.uploaded)) is not None]
    reasons = [each.yanked for each in files if each.yanked not in (None, False)]
    is_yanked = len(reasons) == len(files)
    reason = next((each for each in reasons if isinstance(each, str) and each), "")
    return Release(
        version=version,
        published=min(dates, default=None),
        is_attested=isinstance(_installed(files).provenance, str),
        withdrawn=("yanked" + (f": {reason}" if reason else "")) if is_yanked else "",
    )


def _installed(files: Sequence[_File]) -> _File:
    """Return the file that is most likely installed: a wheel for all systems, another wheel, or the source."""
    return min(files, key=lambda each: (not each.filename.endswith("-any.whl"), not each.filename.endswith(".whl")))


def _order(version: str) -> tuple[int, tuple[int, ...], int] | None:
    """Return what puts final versions in order; None for previews."""
    match = _VERSION.fullmatch(version)
    if match is None or match["pre"] or match["dev"]:
        return None
    numbers = [int(each) for each in match["numbers"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return int(match["epoch"] or 0), tuple(numbers), int(match["post"] or match["post2"] or 0)


def _newest(releases: Mapping[str, Release]) -> str:
    finals = {each: order for each in releases if (order := _order(each)) is not None}
    usable = {each: order for each, order in finals.items() if not releases[each].withdrawn}
    known = usable or finals
    return max(known, key=lambda each: known[each]) if known else next(iter(releases), "")


def _find(version: str, releases: Mapping[str, Release]) -> str:
    """Return the release of a version, which may be written in another way, such as `1.0` for `1.0.0`."""
    if version in releases:
        return version
    order = _order(version)
    return next((each for each in releases if order is not None and _order(each) == order), version)


def _before(release: Release, releases: Mapping[str, Release]) -> list[Release]:
    moment = release.published
    if moment is None:
        return []
    may_be_preview = _order(release.version) is None
    found: list[tuple[datetime, Release]] = [
        (each.published, each)
        for each in releases.values()
        if each.published is not None
        and each.published < moment
        and (may_be_preview or _order(each.version) is not None)
    ]
    return [each for _, each in sorted(found, key=lambda pair: pair[0], reverse=True)]


async def _read_provenance(
    registries: Registries,
    source: PackageSource,
    files: Sequence[_File],
    authorities: bytes | None,
) -> tuple[Attested, ...]:
    """Return the attestations of the file that is installed. Raises NotAnswered."""
    file = _installed(files)
    assert isinstance(file.provenance, str)
    url = urljoin(f"{source.url}/", file.provenance)
    try:
        parts, own = urlsplit(url), urlsplit(source.url)
    except ValueError:
        raise NotAnswered("the URL of the attestation is none") from None
    if (parts.scheme, parts.netloc) != (own.scheme, own.netloc):
        raise NotAnswered("the attestation is on another host than the index, which is not asked")
    place = PackageSource(f"{parts.scheme}://{parts.netloc}", source.headers)
    body = await registries.ask(place, parts.path, _INTEGRITY)
    if body is None:
        raise NotAnswered("the index announces an attestation, and does not have it")
    provenance = decode_answer(body, _Provenance, source)
    pairs = [(bundle.publisher, each) for bundle in provenance.attestation_bundles for each in bundle.attestations]
    digests = {name: text.lower() for name, text in file.hashes.items() if name == "sha256" and isinstance(text, str)}
    judged = (_judge(*pair, digests, authorities) for pair in pairs[:_MOST_ATTESTATIONS])
    return tuple(each for each in judged if each is not None)


def _judge(
    publisher: _Publisher,
    attestation: _PyAttestation,
    digests: Mapping[str, str],
    authorities: bytes | None,
) -> Attested | None:
    """Return what an attestation shows; None if it holds and does not say where the file is from."""
    try:
        if not digests:
            raise BadAttestation("the index names no digest of the file that it could be about")
        envelope = SignedEnvelope(
            payload=decode_base64(attestation.envelope.statement),
            signature=decode_base64(attestation.envelope.signature),
            certificate=decode_base64(attestation.verification_material.certificate),
        )
        statement = check_envelope(envelope, digests, authorities)
        if not statement.kind.startswith(_KINDS):
            return None
        _compare(publisher, statement)
    except BadAttestation as exc:
        return Attested(state=CheckState.FAILED, flaw=str(exc))
    return statement.describe(environment=_text(publisher.environment))


def _compare(publisher: _Publisher, statement: SignedStatement) -> None:
    """Compare the publisher that the index names with the signer of the certificate. Raises BadAttestation."""
    if publisher.kind not in _ISSUERS:
        return
    home, issuer = _ISSUERS[publisher.kind]
    repository = f"{home}{_text(publisher.repository)}/".lower()
    workflow = _text(publisher.workflow) or _text(publisher.workflow_filepath)
    signer = statement.signer.partition("@")[0].lower()
    if not _text(publisher.repository) or not signer.startswith(repository) or statement.issuer != issuer:
        raise BadAttestation("the index names another publisher than the certificate that signs it")
    if not workflow or not signer.endswith(f"/{workflow.lower()}"):
        raise BadAttestation("the index names another workflow than the certificate that signs it")


def _text(value: object) -> str:
    return value[:500] if isinstance(value, str) else ""
