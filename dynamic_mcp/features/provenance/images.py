"""Images: the digest that a tag stands for, and the signatures and attestations that their registry has beside them.

Nothing is pulled, and no signature is checked: only that it is there. https://github.com/opencontainers/distribution-spec
(referrers), and https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md (the tag of a signature).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from urllib.parse import urlencode

from msgspec import Struct, field
from msgspec.structs import replace

from dynamic_mcp.features.provenance.asking import NotAnswered, Registries, decode_answer
from dynamic_mcp.features.provenance.packages import PackageUse
from dynamic_mcp.features.provenance.records import PackageRecord
from dynamic_mcp.features.provenance.sources import PackageSource
from dynamic_mcp.system.text import one_line
from dynamic_mcp.upstream.small_answer import SmallAnswer
from dynamic_mcp.web.address_policy import AddressPolicy
from dynamic_mcp.web.documents import DocumentError, open_documents

DOCKER_HUB = "registry-1.docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_ACCEPT_INDEX: Mapping[str, str] = {"accept": "application/vnd.oci.image.index.v1+json"}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}")
_MOST_BYTES = 1 << 20
_MOST_SHOWN = 5
_KINDS = {
    "application/vnd.dev.cosign.artifact.sig.v1+json": "a signature of cosign",
    "application/vnd.dev.sigstore.bundle.v0.3+json": "a signature or an attestation of Sigstore",
    "application/vnd.cncf.notary.signature": "a signature of Notation",
    "application/vnd.in-toto+json": "an attestation",
}


class _Referrer(Struct, frozen=True):
    kind: object = field(default=None, name="artifactType")


class _Referrers(Struct, frozen=True):
    manifests: tuple[_Referrer, ...] = ()


class _Place(Struct, frozen=True):
    """A repository of a registry: its URL, its path, and the token that lets read it."""

    source: PackageSource
    path: str


async def look_up_image(registries: Registries, use: PackageUse) -> PackageRecord:
    """Return what a registry has of an image. Raises NotAnswered."""
    source, path = _locate(use.name)
    record = PackageRecord(use=use, registry=source.url)
    place, answer = await _open(registries, _Place(source, path), use.digest or use.wanted or "latest")
    if answer.status in (404, 410):
        return replace(record, is_missing=True)
    if answer.status != 200:
        raise NotAnswered(f"the registry of the image answers with status {answer.status}")
    digest = use.digest or answer.headers.get("docker-content-digest", "")
    if not _DIGEST.fullmatch(digest):
        raise NotAnswered("the registry of the image does not say which digest its tag stands for")
    record = replace(record, digest=digest)
    try:
        attachments = dict.fromkeys([each async for each in _attach(registries, place, digest)])
        return replace(record, attachments=tuple(attachments))
    except NotAnswered as exc:
        return replace(record, notes=(str(exc),))


def _locate(name: str) -> tuple[PackageSource, str]:
    """Return the registry of an image, and the image's path there."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        if first in _HUB_NAMES:
            return PackageSource(f"https://{DOCKER_HUB}"), rest if "/" in rest else f"library/{rest}"
        host = first.partition(":")[0]
        scheme = "http" if host in ("localhost", "127.0.0.1") else "https"  # as docker takes it
        return PackageSource(f"{scheme}://{first}"), rest
    return PackageSource(f"https://{DOCKER_HUB}"), name if slash else f"library/{name}"


async def _open(registries: Registries, place: _Place, reference: str) -> tuple[_Place, SmallAnswer]:
    """Return a place that may be read by anyone, and the answer about a manifest there. Raises NotAnswered."""
    answer = await _head(registries, place, reference)
    if answer.status != 401:
        return place, answer
    token = await _fetch_token(place, answer.headers.get("www-authenticate", ""))
    headers = {"authorization": f"Bearer {token}"}
    opened = _Place(PackageSource(place.source.url, headers), place.path)
    answer = await _head(registries, opened, reference)
    if answer.status in (401, 403):
        raise NotAnswered("the registry of the image lets nobody read it without a login")
    return opened, answer


async def _head(registries: Registries, place: _Place, reference: str) -> SmallAnswer:
    path = f"/v2/{place.path}/manifests/{reference}"
    return await registries.request(place.source, path, {"accept": _MANIFESTS}, method="HEAD", most_bytes=_MOST_BYTES)


async def _fetch_token(place: _Place, challenge: str) -> str:
    """Return a token for anyone, as the registry's challenge says. Raises NotAnswered.

    https://distribution.github.io/distribution/spec/auth/token/
    """
    parts = dict(_CHALLENGE.findall(challenge[:5000]))
    realm = parts.get("realm", "")
    if not challenge.lower().startswith("bearer ") or not realm:
        raise NotAnswered("the registry of the image lets nobody read it without a login")
    query = {"scope": f"repository:{place.path}:pull"} | ({"service": parts["service"]} if "service" in parts else {})
    try:
        async with open_documents(AddressPolicy(place.source.url)) as documents:
            document = await documents.fetch(f"{realm}?{urlencode(query)}")
    except DocumentError as exc:
        raise NotAnswered(one_line(str(exc), 300)) from exc
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,20000}", token):
        raise NotAnswered("the registry of the image gives no token")
    return token


async def _attach(registries: Registries, place: _Place, digest: str) -> AsyncIterator[str]:
    """Yield what is beside an image in its registry. Raises NotAnswered."""
    tag = digest.replace(":", "-")
    for suffix, what in ((".sig", "a signature of cosign"), (".att", "an attestation of cosign")):
        if (await _head(registries, place, f"{tag}{suffix}")).status == 200:
            yield what
    body = await registries.ask(
        place.source, f"/v2/{place.path}/referrers/{digest}", _ACCEPT_INDEX, most_bytes=_MOST_BYTES
    )
    if body is not None:
        for each in _kinds_of(decode_answer(body, _Referrers, place.source)):
            yield each


def _kinds_of(referrers: _Referrers) -> Iterator[str]:
    kinds = dict.fromkeys(each.kind for each in referrers.manifests[:1000] if isinstance(each.kind, str))
    for kind in [*kinds][:_MOST_SHOWN]:
        yield _KINDS.get(kind, f"`{one_line(kind, 100)}`")
