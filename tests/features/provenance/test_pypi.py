"""Packages of PyPI: attestations by PEP 740, trusted publishers, and versions that were taken back."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from dynamic_mcp.doctor.findings import Level
from tests.features.provenance.fake_packages import PUBLISHED, FakePackages
from tests.features.provenance.looking import fake, look, texts, worries
from tests.features.provenance.signing import COMMIT, REPOSITORY, WORKFLOW, pypi_provenance, state

__all__ = ["fake"]

NAME = "mcp-weather"
FILE = "mcp_weather-1.0.0-py3-none-any.whl"


def attested(fake: FakePackages, *, signer: Any = None, file: str = FILE, **publisher: str | None) -> Any:
    digest = hashlib.sha256(file.encode()).hexdigest()
    signed = fake.authority.signer(**(signer or {}))
    return pypi_provenance(signed, state(file, {"sha256": digest}, PUBLISHED, None), **publisher)


async def test_an_attested_file_is_checked_and_its_publisher_is_named(fake: FakePackages) -> None:
    fake.publish_pypi(NAME, "1.0.0", is_attested=True)
    findings = await look(fake, f"uvx {NAME}==1.0.0")
    (fact,) = texts(findings, Level.OK)
    built = f"attested to be built from `{REPOSITORY}` (commit `{COMMIT[:12]}`, workflow `{WORKFLOW}`)"
    assert f"{built}, which was checked here; in the environment `pypi`, as the registry says" in fact
    assert worries(findings) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"file": "other.whl"}, "it is about another file"),
        ({"signer": {"repository": "https://github.com/evil/weather"}}, "the index names another publisher"),
        ({"repository": "acme/weath"}, "the index names another publisher"),
        ({"repository": None}, "the index names another publisher"),
        ({"workflow": "other.yml"}, "the index names another workflow"),
        ({"signer": {"issuer": "https://evil.example"}}, "the index names another publisher"),
    ],
)
async def test_an_attestation_that_does_not_hold_is_an_error(
    fake: FakePackages, changes: dict[str, Any], why: str
) -> None:
    fake.publish_pypi(NAME, "1.0.0", provenance=attested(fake, **changes))
    findings = await look(fake, f"uvx {NAME}")
    (error,) = [each for each in findings if each.level is Level.ERROR]
    assert f"has an attestation that does not hold: {why}" in error.what


async def test_what_else_is_signed_about_a_file_does_not_say_where_it_is_from(fake: FakePackages) -> None:
    scanned = state(FILE, {"sha256": hashlib.sha256(FILE.encode()).hexdigest()}, "https://example.com/scan/v1", {})
    fake.publish_pypi(NAME, "1.0.0", provenance=pypi_provenance(fake.authority.signer(), scanned))
    findings = await look(fake, f"uvx {NAME}")
    assert worries(findings) == []
    assert "attested to be built" not in " ".join(texts(findings, Level.OK))


async def test_a_repository_counts_only_if_its_own_site_names_it(fake: FakePackages) -> None:
    made = attested(fake, kind="Other", signer={"issuer": "https://oidc.codefresh.io"})
    fake.publish_pypi(NAME, "1.0.0", provenance=made)
    findings = await look(fake, f"uvx {NAME}")
    assert f"built from `{REPOSITORY}`" not in " ".join(each.what for each in findings)


async def test_another_publisher_and_a_lost_attestation_are_warnings(fake: FakePackages) -> None:
    fake.publish_pypi(NAME, "1.0.0", days=90, is_attested=True)
    fake.publish_pypi(NAME, "1.1.0", days=80, is_attested=True, repository="evil/weather")
    (moved,) = worries(await look(fake, f"uvx {NAME}"))
    assert f"and the attested version before it from `{REPOSITORY}`" in moved
    fake.publish_pypi(NAME, "1.2.0", days=70)
    (lost,) = worries(await look(fake, f"uvx {NAME}"))
    assert lost == f"PyPI package `{NAME}` `1.2.0` is not attested, and `1.1.0` before it was"


async def test_a_yanked_version_is_a_warning_and_is_not_the_newest(fake: FakePackages) -> None:
    fake.publish_pypi(NAME, "1.9.0", days=90)
    fake.publish_pypi(NAME, "1.10.0", days=80)
    fake.publish_pypi(NAME, "2.0.0", days=70, yanked="leaks\x1b[2J tokens")
    fake.publish_pypi(NAME, "3.0.0rc1", days=60)
    newest = texts(await look(fake, f"uvx {NAME}"), Level.OK)[0]
    assert "`1.10.0` (the newest, since its entry names no version)" in newest
    assert worries(await look(fake, f"uvx {NAME}==2.0")) == [
        f"PyPI package `{NAME}` `2.0.0` is yanked: leaks [2J tokens"
    ]


async def test_an_attestation_on_another_host_is_not_asked_for(fake: FakePackages) -> None:
    fake.publish_pypi(NAME, "1.0.0", is_attested=True)
    path = f"/simple/{NAME}/"
    body = fake.find(path)[1].replace(f"{fake.url}/integrity".encode(), b"http://127.0.0.1:1/integrity")
    fake.answer(path, body)
    (note,) = texts(await look(fake, f"uvx {NAME}"), Level.NOTE)
    assert note.endswith("the attestation is on another host than the index, which is not asked")


async def test_names_are_asked_for_in_their_normal_form_and_indexes_in_their_order(fake: FakePackages) -> None:
    fake.publish_pypi(NAME, "1.0.0")
    fake.publish_pypi("other", "1.0.0")
    extra = f"http://user:secret@{fake.host}/extra"
    await look(fake, "uvx --from MCP_Weather[all]==1.0.0 weather", UV_INDEX=extra)
    assert fake.requests == [f"GET /extra/{NAME}/", f"GET /simple/{NAME}/"]
    assert [each.get("authorization", "")[:5] for each in fake.headers] == ["Basic", ""]


async def test_pipx_asks_the_index_of_pip(fake: FakePackages, tmp_path: Any) -> None:
    fake.publish_pypi(NAME, "1.0.0")
    file = tmp_path / "pip.conf"
    file.write_text(f"[global]\nindex-url = {fake.url}/simple\n")
    (fact,) = texts(await look(fake, f"pipx run {NAME}", PIP_CONFIG_FILE=str(file), PIP_INDEX_URL=""), Level.OK)
    assert NAME in fact
