"""Checks what signs an attestation, with nothing but the attestation itself and Sigstore's authority.

Checked: the signature of the envelope by the key of the certificate, the digest that it is about, and that
Sigstore's authority, whose certificates come with this program, has issued the certificate and says in it who signed.
A repository counts only if the site that it is on has named it: other issuers say what their users tell them.
Not checked: that the signature was made in the ten minutes in which the certificate was valid, for which the log of
Sigstore vouches.
DSSE: https://github.com/secure-systems-lab/dsse/blob/master/protocol.md; the extensions of the certificates:
https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
"""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from msgspec import Struct

from dynamic_mcp.features.provenance.asking import parse_object
from dynamic_mcp.features.provenance.records import Attested, CheckState

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
STATEMENT_TYPE = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/"
_FULCIO = "1.3.6.1.4.1.57264.1"
_MOST_SUBJECTS = 1000
_MOST_CHARACTERS = 2000
_UTF8_STRING = 0x0C


class BadAttestation(Exception):
    """Raised if an attestation does not hold; the message says why, as the rest of a sentence about it."""


class SignedStatement(Struct, frozen=True):
    """A statement whose signature holds, and who signed it by the certificate.

    Only if Sigstore's authority has issued the certificate (`is_from_sigstore`), that is more than a claim. `kind` is
    what it states: where a file was built, or anything else that someone may sign about it, such as a scan.
    """

    body: Mapping[str, object]
    kind: str
    signer: str
    issuer: str
    repository: str
    commit: str
    workflow: str
    is_from_sigstore: bool

    def describe(self, *, environment: str = "") -> Attested:
        """Return what it shows; the environment is the word of the registry."""
        return Attested(
            state=CheckState.CHECKED if self.is_from_sigstore else CheckState.UNKNOWN_SIGNER,
            repository=self.repository,
            commit=self.commit,
            workflow=self.workflow,
            environment=environment,
            signer=self.signer,
        )


class SignedEnvelope(Struct, frozen=True):
    """A signed statement: its payload, the signature and the certificate in DER."""

    payload: bytes
    signature: bytes
    certificate: bytes
    payload_type: str = STATEMENT_TYPE


def check_envelope(
    envelope: SignedEnvelope, digests: Mapping[str, str], authorities: bytes | None = None
) -> SignedStatement:
    """Return the statement of an envelope about a file with one of these digests, in hex. Raises BadAttestation.

    `authorities` are certificates in PEM; None is Sigstore's.
    """
    certificate = _load_certificate(envelope.certificate)
    _verify(_key_of(certificate), envelope.signature, _encode(envelope), "it was not signed by its certificate")
    body = parse_object(envelope.payload)
    if body is None or envelope.payload_type != STATEMENT_TYPE or not _text(body.get("_type")).startswith(_STATEMENT):
        raise BadAttestation("it signs something else than a statement")
    _check_subject(body, digests)
    issuer = _extension(certificate, 8) or _extension(certificate, 1)
    older = _extension(certificate, 5) if issuer == GITHUB_ISSUER else ""  # of certificates of before 2023-09
    repository = _vouched(_extension(certificate, 12) or (older and f"https://github.com/{older}"), issuer)
    return SignedStatement(
        body=body,
        kind=_text(body.get("predicateType")),
        signer=_signer(certificate),
        issuer=issuer,
        repository=repository,
        commit=_extension(certificate, 13) or _extension(certificate, 3),
        workflow=_workflow(_extension(certificate, 18), repository),
        is_from_sigstore=_is_issued_by(certificate, load_authorities(authorities)),
    )


class RegistryKey(Struct, frozen=True):
    """A key by which a registry signs: `key` in DER, and until when it does."""

    key: bytes
    expires: datetime | None = None


def check_registry_signature(key: RegistryKey, signature: bytes, message: str, published: datetime | None) -> None:
    """Check that a registry has signed a message. Raises BadAttestation."""
    if key.expires is not None and published is not None and key.expires < published:
        raise BadAttestation("the key of the registry had expired when the version was published")
    try:
        public = load_der_public_key(key.key)
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise BadAttestation("the key of the registry cannot be read") from exc
    _verify(public, signature, message.encode(), "the registry's signature is not by its key")


@cache
def load_authorities(pem: bytes | None = None) -> tuple[x509.Certificate, ...]:
    """Return the certificates of authorities, by default those of Sigstore for signers, which are valid until 2031.

    Those are of `trusted_root.json` in Sigstore's TUF repository.
    """
    data = files(__package__).joinpath("sigstore.pem").read_bytes() if pem is None else pem
    return tuple(x509.load_pem_x509_certificates(data))


def decode_base64(text: object) -> bytes:
    """Return the bytes of a text in base64. Raises BadAttestation."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError) as exc:
        raise BadAttestation("it has something that is not base64") from exc


def _load_certificate(data: bytes) -> x509.Certificate:
    try:
        with warnings.catch_warnings(action="error", category=CryptographyDeprecationWarning):  # such as a serial < 1
            return x509.load_der_x509_certificate(data)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, CryptographyDeprecationWarning) as exc:
        raise BadAttestation("its certificate cannot be read") from exc


def _key_of(certificate: x509.Certificate) -> object:
    try:
        return certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise BadAttestation("the key of its certificate cannot be read") from exc


def _verify(key: object, signature: bytes, message: bytes, flaw: str) -> None:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadAttestation("it is signed by a key of a kind that is not known here")
    algorithm = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}.get(key.curve.key_size)
    if algorithm is None:
        raise BadAttestation("it is signed by a key of a kind that is not known here")
    try:
        key.verify(signature, message, ec.ECDSA(algorithm))
    except InvalidSignature as exc:
        raise BadAttestation(flaw) from exc


def _encode(envelope: SignedEnvelope) -> bytes:
    """Return what the signature of an envelope signs (DSSE, PAE)."""
    kind = envelope.payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(envelope.payload), envelope.payload)


def _check_subject(body: Mapping[str, object], digests: Mapping[str, str]) -> None:
    subjects = body.get("subject")
    found = [
        digest.get(name)
        for each in (subjects[:_MOST_SUBJECTS] if isinstance(subjects, list) else ())
        if isinstance(each, dict) and isinstance(digest := each.get("digest"), dict)
        for name in digests
    ]
    if not any(isinstance(each, str) and each.lower() in digests.values() for each in found):
        raise BadAttestation("it is about another file: the digest that it names is not that of the package")


def _signer(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return ""
    kinds: tuple[type[x509.UniformResourceIdentifier | x509.RFC822Name], ...]
    kinds = (x509.UniformResourceIdentifier, x509.RFC822Name)
    return next((text[:_MOST_CHARACTERS] for kind in kinds for text in names.get_values_for_type(kind)), "")


def _extension(certificate: x509.Certificate, number: int) -> str:
    """Return the text of one of Fulcio's extensions; since number 8, they are strings in DER."""
    try:
        value = certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier(f"{_FULCIO}.{number}")).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return ""
    data = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
    if number >= 8:
        data = _text_of_der(data)
    return data[:_MOST_CHARACTERS].decode(errors="replace")


def _vouched(repository: str, issuer: str) -> str:
    """Return a repository if its own site has issued the identity of the signer; else nothing."""
    is_of_github = issuer == GITHUB_ISSUER or issuer.startswith(f"{GITHUB_ISSUER}/")  # of an enterprise
    home = "https://github.com" if is_of_github else issuer.rstrip("/")
    return repository if issuer and repository.lower().startswith(f"{home.lower()}/") else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _workflow(uri: str, repository: str) -> str:
    """Return the path of a workflow in its repository, without the branch or the tag."""
    place = uri.partition("@")[0]
    is_inside = place.lower().startswith(f"{repository.lower()}/")
    return place[len(repository) :].lstrip("/") if is_inside else place


def _text_of_der(data: bytes) -> bytes:
    """Return the content of a UTF8String (X.690, section 8.1.3), empty for anything else."""
    if len(data) < 2 or data[0] != _UTF8_STRING:
        return b""
    if data[1] < 0x80:
        return data[2 : 2 + data[1]]
    size = data[1] & 0x7F
    start = 2 + size
    return data[start : start + int.from_bytes(data[2:start])] if 0 < size <= 2 else b""


def _is_issued_by(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether one of these authorities has issued a certificate for signing code."""
    try:
        usage = certificate.extensions.get_extension_for_oid(ExtensionOID.EXTENDED_KEY_USAGE).value
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        if constraints.ca:
            return False
    except x509.ExtensionNotFound as exc:
        if exc.oid != ExtensionOID.BASIC_CONSTRAINTS:
            return False
    except (x509.DuplicateExtension, ValueError):
        return False
    if not isinstance(usage, x509.ExtendedKeyUsage) or ExtendedKeyUsageOID.CODE_SIGNING not in usage:
        return False
    return any(_has_issued(authority, certificate) for authority in authorities)


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    is_within = (
        authority.not_valid_before_utc <= certificate.not_valid_before_utc
        and certificate.not_valid_after_utc <= authority.not_valid_after_utc
    )
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return is_within
