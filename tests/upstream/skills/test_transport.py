"""Folders of skills as a group: what a client sees of them, and how changes come through."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolved import SkillFolders
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.upstream import own_transport
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear
from tests.fakes import group_config, text_of
from tests.proxy.skill_upstreams import list_skills, read_text
from tests.upstream.skills.folders import serving, write_skill

EXTENSION = "io.modelcontextprotocol/skills"


async def test_the_extension_is_declared_before_the_folders_are_read(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "pdf")
    async with serving(tmp_path) as client:
        answer = await client.initialize()
    assert answer["result"]["capabilities"]["extensions"] == {EXTENSION: {"directoryRead": True}}


async def test_texts_and_bytes_are_read_as_they_are_and_directories_have_their_children(tmp_path: Path) -> None:
    text, data = "a\r\nb \u00fc\ufeff\n", bytes(range(256))
    write_skill(tmp_path / "skills", "acme/pdf", t__a_md=text, t__x_bin=data)
    async with serving(tmp_path) as client:
        (uri,) = await list_skills(client)
        read = await client.request("resources/read", {"uri": "skill://acme/pdf/t/x.bin"})
        top = await client.request("resources/directory/read", {"uri": "skill://acme/pdf"})
        below = await client.request("resources/directory/read", {"uri": "skill://acme/pdf/t"})

        assert uri == "skill://acme/pdf/SKILL.md"
        assert (await read_text(client, "skill://acme/pdf/t/a.md"))[1] == text
        assert base64.b64decode(read["result"]["contents"][0]["blob"]) == data
    kinds = {each["uri"]: each.get("mimeType") for each in top["result"]["resources"]}
    assert kinds == {uri: "text/markdown", "skill://acme/pdf/t": "inode/directory"}
    assert {each["name"] for each in below["result"]["resources"]} == {"a.md", "x.bin"}


async def test_a_name_with_a_space_is_a_uri(tmp_path: Path) -> None:
    skill = write_skill(tmp_path / "skills", "pdf")
    (skill / "a b%.md").write_text("spaced")
    async with serving(tmp_path) as client:
        (entry,) = (await list_skills(client)).values()
        assert await read_text(client, entry["resources"][1]["uri"]) == ("skill://pdf/a%20b%25.md", "spaced")


async def test_a_path_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "pdf")
    (tmp_path / "secret.md").write_text("secret")
    async with serving(tmp_path) as client:
        await list_skills(client)
        for uri in ("skill://pdf/../../secret.md", "skill://pdf/%2e%2e/%2e%2e/secret.md", "skill://../secret.md"):
            assert "error" in await client.request("resources/read", {"uri": uri})


@pytest.mark.posix_only("links need a right on Windows")
async def test_a_file_that_becomes_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    skill = write_skill(tmp_path / "skills", "pdf", a_md="a")
    (tmp_path / "secret.md").write_text("secret")
    async with serving(tmp_path) as client:
        await list_skills(client)
        (skill / "a.md").unlink()
        (skill / "a.md").symlink_to(tmp_path / "secret.md")
        answer = await client.request("resources/read", {"uri": "skill://pdf/a.md"})
    assert answer["error"]["code"] == -32602


async def test_a_changed_file_is_noticed_while_it_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_transport, "LOOK_EVERY_S", 0.05)
    skill = write_skill(tmp_path / "skills", "pdf", a_md="a")
    async with serving(tmp_path) as client:
        (before,) = (await list_skills(client)).values()
        (skill / "a.md").write_text("changed")
        times, after = 0, before
        while after == before:
            times += 1
            await client.hears("notifications/resources/list_changed", times)
            (after,) = (await list_skills(client)).values()

    assert [each["size"] for each in after["resources"]][1:] == [len("changed")]


async def test_a_folder_that_is_missing_breaks_the_group_with_the_reason() -> None:
    config = group_config("own", upstream=SkillFolders(("/nowhere/at/all",)))
    with pytest.raises(Unreachable, match="the folder `/nowhere/at/all` cannot be read"):
        await open_link(config, Ear(), ClientInfo())


async def test_the_group_is_described_by_its_skills_and_they_are_found(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "refunds", "description: Process customer refunds per policy. Then more.")
    write_skill(tmp_path / "skills", "pdf", "description: Fill documents")
    async with serving(tmp_path) as client:
        await list_skills(client)
        (tool, _) = (await client.request("tools/list"))["result"]["tools"]
        ask = {"name": "get_dynamic_tools", "arguments": {"query": "refund a customer"}}
        result = (await client.request("tools/call", ask))["result"]

    assert "Skills: pdf, refunds" in tool["description"]
    assert json.loads(text_of(result)) == {
        "tools": [],
        "skills": [
            {
                "group": "own",
                "name": "refunds",
                "description": "Process customer refunds per policy.",
                "uri": "skill://refunds/SKILL.md",
            }
        ],
    }
    assert "as a resource" in result["content"][1]["text"]
