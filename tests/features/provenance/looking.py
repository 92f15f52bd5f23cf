"""Looks at the packages of command lines, with the registries of a test."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.features.provenance.examination import ServerPackage, examine, list_findings
from tests.features.provenance.fake_packages import NOW, FakePackages, fake_packages


@pytest.fixture
def fake() -> Iterator[FakePackages]:
    with fake_packages() as running:
        yield running


async def look(fake: FakePackages, *lines: str, within_s: float = 10.0, **env: str) -> list[Finding]:
    """Return what is found about the packages of these command lines."""
    packages = [
        ServerPackage(f"s{number}", tuple(shlex.split(line)), {"HOME": "/nonexistent", **fake.environment, **env})
        for number, line in enumerate(lines)
    ]
    return list_findings(await examine(packages, within_s=within_s, authorities=fake.authority.pem), now=NOW)


def texts(findings: list[Finding], level: Level) -> list[str]:
    return [each.what for each in findings if each.level is level]


def worries(findings: list[Finding]) -> list[str]:
    """Return what is more than a fact."""
    return [each.what for each in findings if each.level in (Level.WARNING, Level.ERROR)]
