"""The section with the effect of the access rules: the same as the command says, and why."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from msgspec.structs import replace

from dynamic_mcp.config.access import Access, AccessRule, Condition, Effect
from dynamic_mcp.config.ui import Ui
from dynamic_mcp.ui.access import AccessSection
from dynamic_mcp.ui.now import NowSection
from tests.fakes import FakeUpstream, Json, Opener, config_of, group_config, tool
from tests.ui.site import Answer, Site, bearer_http, site_of

HARM = "<script>alert(1)</script>\u202e\x1b[31m"
DELETE = tool("delete", annotations={"destructiveHint": True})
READ = tool("look", annotations={"readOnlyHint": True})
RULES = Access(
    default=Effect.DENY,
    roles={
        "admins": (AccessRule(id="all"),),
        "checkers": (AccessRule(id="reads", only="read"),),
        "staff": (
            AccessRule(id="files", servers=("files",)),
            AccessRule(id="no-delete", tools=("delete",), effect=Effect.ASK),
            AccessRule(id="some", tools=("look",), effect=Effect.DENY, arguments=(Condition(path="$.n", minimum=3),)),
        ),
    },
    people={"ann": ("admins",), "local": ("staff",)},
)


@contextlib.asynccontextmanager
async def access_site(folder: Path, *tools: Json, access: Access | None = RULES) -> AsyncIterator[Site]:
    config = config_of(group_config("files"), access=access, ui=Ui(operators=("admins",), approvers=("checkers",)))
    upstream = FakeUpstream()
    upstream.answers["tools/list"] = {"tools": list(tools or (READ, DELETE))}
    async with site_of(folder, config, Opener(files=[upstream]), [NowSection, AccessSection]) as site:
        http = bearer_http()
        site.configure(replace(site.config, http=http), http)
        await (await site.local_user()).act("/ui/now/retry/files")
        yield site


def cells(page: Answer) -> list[str]:
    """Return the links of the cells, row by row."""
    return [each["href"] for each in page.document.find("a") if each["href"].startswith("/ui/access/why?")]


async def test_the_matrix_says_what_the_rules_say_for_each_role(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        page = await (await site.local_user()).get("/ui/access")
        assert "look files write allow deny depends delete files write allow deny ask" in page.text
        assert "admins checkers staff" in page.text


async def test_the_matrix_has_people_of_the_config_and_of_tokens(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        page = await (await site.local_user()).get("/ui/access?of=people")
        assert "local ann token:bob token:eve" in page.text
        assert "delete files write ask allow deny ask" in page.text


async def test_a_cell_leads_to_the_rules_that_were_considered(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        browser = await site.local_user()
        links = cells(await browser.get("/ui/access?q=delete"))
        assert parse_qs(urlsplit(links[2]).query)["as"] == ["role:staff"]
        page = await browser.get(links[2])
        assert "For the role staff: ask" in page.text
        assert "Decided by no-delete" in page.text
        assert "files allow everything of files matches" in page.text
        assert "some deny tools look of *; arguments $.n its tools do not match" in page.text


async def test_arguments_decide_what_depends_on_them(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        browser = await site.local_user()
        link = cells(await browser.get("/ui/access?q=look&who=staff"))[0]
        assert "For the role staff: depends" in (await browser.get(link)).text
        assert "For the role staff: deny" in (await browser.get(f"{link}&args=%7B%22n%22%3A5%7D")).text
        assert "For the role staff: allow" in (await browser.get(f"{link}&args=%7B%22n%22%3A1%7D")).text
        wrong = await browser.get(f"{link}&args=%5B1%5D")
        assert (wrong.status, "not a JSON object" in wrong.text) == (400, True)


async def test_rows_are_paged_and_filtered_and_columns_bounded(tmp_path: Path) -> None:
    roles = {f"role-{n}": (AccessRule(),) for n in range(30)}
    async with access_site(
        tmp_path, *(tool(f"tool_{n}" + "\N{PILE OF POO}" * 100) for n in range(70)), access=Access(roles=roles)
    ) as site:
        browser = await site.local_user()
        page = await browser.get("/ui/access")
        assert "Page 1 of 3" in page.text
        assert "and 22 more roles" in page.text
        assert len(page.response.body) < 50_000
        part = await browser.get("/ui/access?q=tool_69&who=role-29", {"x-fragment": "rows"})
        assert len(cells(part)) == 1
        assert (await browser.get(cells(part)[0])).status == 200


async def test_hostile_names_stay_text(tmp_path: Path) -> None:
    async with access_site(tmp_path, tool(f"t{HARM}", description=HARM)) as site:
        browser = await site.local_user()
        first = await browser.get("/ui/access")
        for page in (first, await browser.get(cells(first)[0])):
            assert page.document.find("script") == page.document.find("script", type="module")
            assert "\u202e" not in page.document.html
            assert "<script>alert(1)</script>" in page.text


async def test_only_an_operator_sees_access(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        link = cells(await (await site.person("ann")).get("/ui/access"))[0]
        for name in ("bob", "eve"):
            browser = await site.person(name)
            assert (await browser.get("/ui/access")).status == 404
            assert (await browser.get(link)).status == 404


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    async with access_site(tmp_path) as site:
        browser = await site.local_user()
        for path in ("why?tool=nothing&as=role:staff", "why", "why?tool=&as=person:nobody"):
            assert (await browser.get(f"/ui/access/{path}")).status in (400, 404)
    for access in (None, Access(default=Effect.ALLOW, approve={"files": ("delete",)})):
        async with access_site(tmp_path, access=access) as site:
            page = await (await site.local_user()).get("/ui/access")
            assert "There are no access rules" in page.text
