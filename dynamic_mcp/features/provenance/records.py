"""What a registry says of a package and of one version, and what was checked of it. All texts are a stranger's."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from msgspec import Struct

from dynamic_mcp.features.provenance.packages import PackageUse


class CheckState(Enum):
    """How much of an attestation was checked here."""

    CHECKED = "checked"  # its signature, that Sigstore's authority vouches for the signer, and its digest
    UNKNOWN_SIGNER = "unknown signer"  # the signature holds, and anyone may have made it
    FAILED = "failed"


class Attested(Struct, frozen=True, kw_only=True):
    """Where the certificate of an attestation says that a version was built, or why it does not hold (`flaw`).

    The `environment` is the word of the registry alone.
    """

    state: CheckState
    repository: str = ""
    commit: str = ""
    workflow: str = ""
    environment: str = ""
    signer: str = ""
    flaw: str = ""


class SignatureCheck(Struct, frozen=True):
    """Whether the registry's own signature holds; None if it gives none."""

    holds: bool | None = None
    flaw: str = ""


class Release(Struct, frozen=True, kw_only=True):
    """One version of a package. `maintainers` are those of its time; `withdrawn` says why it should not be used.

    `is_by_workflow`: a workflow that the project trusts has published it, and no person with a login.
    """

    version: str
    published: datetime | None = None
    publisher: str = ""
    maintainers: tuple[str, ...] = ()
    is_attested: bool = False
    is_by_workflow: bool = False
    scripts: tuple[str, ...] = ()
    withdrawn: str = ""


class PackageRecord(Struct, frozen=True, kw_only=True):
    """A package as its registry describes it.

    `release` is the version that a server runs, or the newest of those that it may run. `earlier` are the versions
    before it, the latest first. `is_missing`: the registry has no such package, and `lacks_version`, no such version.
    """

    use: PackageUse
    registry: str
    is_missing: bool = False
    lacks_version: bool = False
    newest: str = ""
    is_exact: bool = True  # False: the entry asks for a range, which may lead to another version than `release`
    release: Release | None = None
    earlier: tuple[Release, ...] = ()
    first_published: datetime | None = None
    attested: tuple[Attested, ...] = ()
    attested_before: tuple[Attested, ...] = ()  # the one before it that was attested
    signature: SignatureCheck = SignatureCheck()
    notes: tuple[str, ...] = ()  # what could not be asked
    digest: str = ""  # of an image
    attachments: tuple[str, ...] = ()  # to an image: signatures and attestations


def parse_time(text: object) -> datetime | None:
    """Return a time of a registry, or None if it is none."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
