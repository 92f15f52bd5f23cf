"""Redaction leaves files of skills alone, whose digests are of their bytes, and `check` says so."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.config.resolved import SkillFolders
from dynamic_mcp.features.redaction.check import check
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.groups.catalog import Catalog
from tests.fakes import Opener, client_of, config_of, group_config
from tests.proxy.skill_upstreams import SkillUpstream, list_skills, read_text
from tests.upstreams.skills import EXTENSION

RULES = {"redact": (Redact("r0", pattern=r"secret-\d+", replacement="[x]"),)}
HAS_SKILLS = Catalog(capabilities={"extensions": Raw(b'{"%s":{}}' % EXTENSION.encode())})


async def test_files_of_skills_stay_as_their_digests_say_and_other_resources_are_redacted() -> None:
    upstream = SkillUpstream("a", {"refunds": {"email.md": "it is secret-1"}})
    upstream.server.files["x://other"] = "it is secret-1"
    async with client_of(Opener(a=[upstream]), group_config("a", rules=RULES)) as client:
        await client.initialize()
        await list_skills(client)
        assert (await read_text(client, "skill://refunds/email.md"))[1] == "it is secret-1"
        assert (await read_text(client, "x://other"))[1] == "it is [x]"


def test_check_says_that_skills_are_not_redacted() -> None:
    groups = (
        group_config("a", rules=RULES),
        group_config("own", rules=RULES, upstream=SkillFolders(("/skills",))),
        group_config("plain", rules=RULES),
    )
    found = check(config_of(*groups), lambda: {"a": HAS_SKILLS, "plain": Catalog()})
    assert [each.where for each in found] == ["mcpServers.a", "mcpServers.own"]
