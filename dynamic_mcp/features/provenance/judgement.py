"""What a person should know of a package: findings, of which the first says what it is and where it comes from.

Two words are kept apart: a registry says that something is attested, and what was checked here was checked by
cryptography. No finding says that a package is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.errors import UntrustedPackage
from dynamic_mcp.features.provenance.known import find_look_alike
from dynamic_mcp.features.provenance.packages import PackageUse
from dynamic_mcp.features.provenance.records import Attested, CheckState, PackageRecord, Release
from dynamic_mcp.system.text import format_age, one_line

NEW_PACKAGE = timedelta(days=30)
NEW_VERSION = timedelta(days=3)
_LONGEST = 120
_BEST_FIRST = (CheckState.CHECKED, CheckState.UNKNOWN_SIGNER, CheckState.FAILED)


class _Place(Struct, frozen=True):
    where: str

    def ok(self, what: str) -> Finding:
        return Finding(Level.OK, self.where, what)

    def note(self, what: str, hint: str = "") -> Finding:
        return Finding(Level.NOTE, self.where, what, hint)

    def warn(self, what: str, hint: str = "") -> Finding:
        return Finding(Level.WARNING, self.where, what, hint)

    def refuse(self, what: str) -> Finding:
        hint = "do not run it; tell the registry and the authors of the package"
        return Finding(Level.ERROR, self.where, what, hint, UntrustedPackage.exit_code)


def judge(record: PackageRecord, where: str, now: datetime) -> Iterator[Finding]:
    """Yield the findings about a package."""
    place, use = _Place(where), record.use
    yield from judge_name(use, where)
    if record.is_missing:
        anyone = "" if use.kind == "oci" else ", so anyone may publish one of this name"
        yield place.warn(f"{_host(record)} has no {_label(use)}{anyone}", "is its name spelled right?")
        return
    if record.lacks_version:
        yield place.warn(
            f"{_host(record)} has no version {_show(use.version or use.wanted)} of {_label(use)}",
            f"it may have been taken back; the newest is {_show(record.newest)}",
        )
        return
    if use.kind == "oci":
        yield place.ok(_describe_image(record))
    elif record.release is not None:
        yield place.ok(_describe(record, record.release, now))
        yield from _judge_attestations(place, record, record.release)
        yield from _judge_release(place, record, record.release, now)
    for text in record.notes:
        yield place.note(f"{_label(use)}: not all could be asked: {one_line(text, 300)}")


def judge_name(use: PackageUse, where: str) -> Iterator[Finding]:
    """Yield the finding about a name that looks like that of a known server."""
    known = find_look_alike(use.kind, use.name)
    if known is not None:
        what = f"{_label(use)} is not `{known}`, whose name looks like it"
        yield _Place(where).warn(what, "is it the one that you mean?")


def _describe(record: PackageRecord, release: Release, now: datetime) -> str:
    parts = [f"{_label(record.use)} {_show(release.version)}{_reason(record.use)}"]
    if release.published is not None:
        by = f" by {_show(release.publisher)}" if release.publisher else ""
        parts.append(f"published {_age(release.published, now)} ago{by}")
    best = _best(record.attested)
    if best is not None and best.state is CheckState.CHECKED:
        parts.append(f"attested to be built from {_source(best)}, which was checked here")
        parts += [f"in the environment {_show(best.environment)}, as the registry says"] if best.environment else []
    elif best is None and not release.is_attested:
        parts.append("its registry has no attestation of where it was built")
    if record.signature.holds:
        parts.append("signed by the registry, which was checked here with the keys that it publishes")
    return "; ".join(parts)


def _reason(use: PackageUse) -> str:
    if use.version:
        return ""
    asks = f"asks for {_show(use.wanted)}" if use.wanted else "names no version"
    return f" (the newest, since its entry {asks})"


def _describe_image(record: PackageRecord) -> str:
    beside = ", ".join(record.attachments)
    said = f"beside it in its registry: {beside}, not checked here" if beside else "nothing beside it vouches for it"
    fixed = "" if record.use.digest else " now"
    return f"{_label(record.use)} is{fixed} `{record.digest}`; {said}"


def _judge_attestations(place: _Place, record: PackageRecord, release: Release) -> Iterator[Finding]:
    label = f"{_label(record.use)} {_show(release.version)}"
    for each in record.attested:
        if each.state is CheckState.FAILED:
            yield place.refuse(f"{label} has an attestation that does not hold: {each.flaw}")
    if record.signature.holds is False:
        yield place.refuse(f"{label} has a signature of its registry that does not hold: {record.signature.flaw}")
    best = _best(record.attested)
    if best is not None and best.state is CheckState.UNKNOWN_SIGNER:
        yield place.warn(
            f"{label} is attested to be built from {_source(best)}, by a certificate that is not Sigstore's",
            "anyone could have made this attestation",
        )
    if not release.is_attested:
        earlier = next((each for each in record.earlier if each.is_attested), None)
        if earlier is not None:
            yield place.warn(
                f"{label} is not attested, and {_show(earlier.version)} before it was",
                "someone with a stolen login may have published it: ask its authors, or stay with that one",
            )
    elif not record.attested and not record.notes:
        yield place.note(f"{label} is attested by its registry, which does not say where it was built")
    before, after = _sources(record.attested_before), _sources(record.attested)
    if before and after and not before & after:
        yield place.warn(
            f"{label} was built from {_joined(after)}, and the attested version before it from {_joined(before)}",
            "has the project moved?",
        )


def _judge_release(place: _Place, record: PackageRecord, release: Release, now: datetime) -> Iterator[Finding]:
    label = f"{_label(record.use)} {_show(release.version)}"
    if release.withdrawn:
        yield place.warn(f"{label} is {one_line(release.withdrawn, 200)}", f"the newest is {_show(record.newest)}")
    if record.first_published is not None and now - record.first_published < NEW_PACKAGE:
        age = _age(record.first_published, now)
        yield place.warn(f"{_label(record.use)} was first published {age} ago", "do you know its authors?")
    elif release.published is not None and now - release.published < NEW_VERSION:
        hint = "harmful versions are mostly found within days"
        yield place.note(f"{label} was published {_age(release.published, now)} ago", hint)
    yield from _judge_people(place, label, record, release)
    before = record.earlier[0] if record.earlier else None
    if release.scripts:
        scripts = ", ".join(f"`{one_line(each, 80)}`" for each in release.scripts)
        is_new = before is not None and not before.scripts
        yield (place.warn if is_new else place.note)(
            f"{label} runs a script when it is installed: {scripts}"
            + (", which the version before it did not" if is_new else "")
        )


def _judge_people(place: _Place, label: str, record: PackageRecord, release: Release) -> Iterator[Finding]:
    earlier, best = record.earlier, _best(record.attested)
    publishers = {each.publisher for each in earlier if each.publisher}
    is_checked = best is not None and best.state is CheckState.CHECKED
    who = _show(release.publisher)
    if earlier and earlier[0].is_by_workflow and not release.is_by_workflow:
        yield place.warn(
            f"{label} was published by {who} with a login, and the version before it by a workflow of the project",
            "someone with a stolen login may have published it: ask its authors, or stay with that one",
        )
    elif release.is_by_workflow and is_checked and not any(each.is_by_workflow for each in earlier):
        if earlier:
            yield place.note(f"{label} was published by a workflow of the project, for the first time")
    elif release.publisher and publishers and release.publisher not in publishers:
        many = len(earlier) > 1
        did_not = f"published none of the {len(earlier)} versions" if many else "did not publish the version"
        yield place.warn(f"{label} was published by {who}, who {did_not} before it")
    before = earlier[0].maintainers if earlier else ()
    if before and release.maintainers and not {*before} & {*release.maintainers}:
        yield place.warn(f"{label} has other maintainers than the version before it, and none of those")


def _best(found: Sequence[Attested]) -> Attested | None:
    return min(found, key=lambda each: _BEST_FIRST.index(each.state), default=None)


def _sources(found: Sequence[Attested]) -> set[str]:
    return {each.repository.rstrip("/").lower() for each in found if each.repository}


def _joined(sources: set[str]) -> str:
    return ", ".join(_show(each) for each in sorted(sources))


def _source(attested: Attested) -> str:
    details = [f"commit {_show(attested.commit[:12])}"] if attested.commit else []
    details += [f"workflow {_show(attested.workflow)}"] if attested.workflow else []
    place = _show(attested.repository or attested.signer or "a place that it does not name")
    return f"{place} ({', '.join(details)})" if details else place


def _label(use: PackageUse) -> str:
    tag = f":{use.wanted}" if use.kind == "oci" and use.wanted else ""
    return f"{use.label} {_show(use.name + tag)}"


def _host(record: PackageRecord) -> str:
    return _show(record.registry.partition("://")[2].partition("/")[0] or record.registry)


def _show(text: str) -> str:
    return f"`{one_line(text, _LONGEST)}`"


def _age(moment: datetime, now: datetime) -> str:
    return format_age(max(0.0, (now - moment).total_seconds()))
