"""Keys, certificates and attestations as Sigstore, npm and PyPI have them, made here."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Json = Any  # whatever JSON a test writes down

REPOSITORY = "https://github.com/acme/weather"
WORKFLOW = ".github/workflows/release.yml"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ISSUER = "https://token.actions.githubusercontent.com"
FULCIO = "1.3.6.1.4.1.57264.1"
STATEMENT = "application/vnd.in-toto+json"


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def encode_string(text: str) -> bytes:
    """Return a UTF8String in DER (X.690)."""
    data = text.encode()
    size = bytes([len(data)]) if len(data) < 0x80 else bytes([0x82]) + len(data).to_bytes(2)
    return b"\x0c" + size + data


class Authority:
    """An authority for signers, as Fulcio is one."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        days = datetime.timedelta(days=100)
        builder = x509.CertificateBuilder(
            self._name, self._name, self._key.public_key(), x509.random_serial_number(), now - days, now + days
        ).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)

    def signer(
        self,
        *,
        repository: str = REPOSITORY,
        workflow: str = WORKFLOW,
        commit: str = COMMIT,
        issuer: str = ISSUER,
        is_for_code: bool = True,
        extensions: Mapping[int, bytes] | None = None,
    ) -> Signer:
        """Return a signer with a certificate for ten minutes, of some days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=40)
        end = begin + datetime.timedelta(minutes=10)
        name = x509.UniformResourceIdentifier(f"{repository}/{workflow}@refs/tags/v1")
        usage = ExtendedKeyUsageOID.CODE_SIGNING if is_for_code else ExtendedKeyUsageOID.SERVER_AUTH
        builder = (
            x509.CertificateBuilder(
                self._name, x509.Name([]), key.public_key(), x509.random_serial_number(), begin, end
            )
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        texts = {
            8: issuer,
            12: repository,
            13: commit,
            14: "refs/tags/v1",
            18: f"{repository}/{workflow}@refs/tags/v1",
        }
        values = {number: encode_string(text) for number, text in texts.items()} | dict(extensions or {})
        for number, data in values.items():
            oid = x509.ObjectIdentifier(f"{FULCIO}.{number}")
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, data), critical=False)
        certificate = builder.sign(self._key, hashes.SHA384())
        return Signer(key, certificate.public_bytes(serialization.Encoding.DER))


class Signer:
    """The key of one build, and the certificate for it."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: bytes) -> None:
        self._key = key
        self.certificate = certificate

    def sign(self, payload: bytes, kind: str = STATEMENT) -> bytes:
        """Return the signature of an envelope (DSSE)."""
        text = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
        return self._key.sign(text, ec.ECDSA(hashes.SHA256()))


class SigningKey:
    """The key of a registry of npm, and what the registry publishes of it."""

    def __init__(self, *, expires: str | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.id = "SHA256:fake"
        self._expires = expires

    def publish(self) -> Json:
        form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return {
            "expires": self._expires,
            "keyid": self.id,
            "keytype": "ecdsa-sha2-nistp256",
            "scheme": "ecdsa-sha2-nistp256",
            "key": to_base64(self._key.public_key().public_bytes(*form)),
        }

    def sign(self, message: str) -> Json:
        return {"keyid": self.id, "sig": to_base64(self._key.sign(message.encode(), ec.ECDSA(hashes.SHA256())))}


def state(name: str, digests: Mapping[str, str], predicate_type: str, predicate: Json) -> bytes:
    """Return a statement about a file (in-toto)."""
    return json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": dict(digests)}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    ).encode()


def slsa(repository: str = REPOSITORY, commit: str = COMMIT, workflow: str = WORKFLOW) -> Json:
    """Return the predicate of SLSA provenance 1, as npm publishes it."""
    return {
        "buildDefinition": {
            "buildType": "https://slsa-framework.github.io/github-actions-buildtypes/workflow/v1",
            "externalParameters": {
                "workflow": {"ref": "refs/tags/v1", "repository": repository, "path": workflow},
            },
            "resolvedDependencies": [
                {"uri": f"git+{repository}@refs/tags/v1", "digest": {"gitCommit": commit}},
            ],
        },
        "runDetails": {"builder": {"id": "https://github.com/actions/runner/github-hosted"}},
    }


def bundle(signer: Signer, statement: bytes) -> Json:
    """Return a bundle of Sigstore, as npm has it."""
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"certificate": {"rawBytes": to_base64(signer.certificate)}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": to_base64(statement),
            "payloadType": STATEMENT,
            "signatures": [{"sig": to_base64(signer.sign(statement)), "keyid": ""}],
        },
    }


def npm_attestations(bundles: Sequence[Json], kind: str = "https://slsa.dev/provenance/v1") -> Json:
    """Return the answer of npm about the attestations of a version."""
    return {"attestations": [{"predicateType": kind, "bundle": each} for each in bundles]}


def pypi_provenance(signer: Signer, statement: bytes, **publisher: str | None) -> Json:
    """Return the answer of PyPI about a file (PEP 740)."""
    named = {"kind": "GitHub", "repository": "acme/weather", "workflow": "release.yml", "environment": "pypi"}
    attestation = {
        "version": 1,
        "verification_material": {"certificate": to_base64(signer.certificate), "transparency_entries": [{}]},
        "envelope": {"statement": to_base64(statement), "signature": to_base64(signer.sign(statement))},
    }
    return {
        "version": 1,
        "attestation_bundles": [{"publisher": named | publisher, "attestations": [attestation]}],
    }
