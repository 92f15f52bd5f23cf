"""Names that look like those of known servers, and real ones that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.features.provenance.known import find_look_alike, known_names
from dynamic_mcp.features.provenance.packages import PackageKind
from tests.examples import examples

FILES = "@modelcontextprotocol/server-filesystem"


@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [
        ("npm", "modelcontextprotocol-server-filesystem", FILES),
        ("npm", "modelcontextprotocol/server-filesystem", FILES),
        ("npm", "@modelcontextprotocol/serverfilesystem", FILES),
        ("npm", "@modelcontextprotocol/server_filesystem", FILES),
        ("npm", "@modelcontextprotoco1/server-filesystem", FILES),
        ("npm", "@model-context-protocol/server-filesystem", FILES),
        ("npm", "@modelcontextprotocols/server-filesystem", FILES),
        ("npm", "@modelcontextprotocol/server-filesytem", FILES),
        ("npm", "@modelcontextprotocol/server-filesystems", FILES),
        ("npm", "@modelcontextprotocol/server-f\u0456lesystem", FILES),
        ("npm", "server-filesystem", FILES),
        ("npm", "@playwrigth/mcp", "@playwright/mcp"),
        ("npm", "mpc-remote", "mcp-remote"),
        ("pypi", "mcp-sever-git", "mcp-server-git"),
        ("pypi", "mcp-server-gti", "mcp-server-git"),
        ("pypi", "mcpservergit", "mcp-server-git"),
        ("oci", "ghcr.io/githud/github-mcp-server", "ghcr.io/github/github-mcp-server"),
    ],
)
def test_a_name_that_looks_like_a_known_one_is_found(kind: PackageKind, name: str, known: str) -> None:
    assert find_look_alike(kind, name) == known


# Servers and packages about MCP that many people download, which are not in our list.
POPULAR = """
@orval/mcp @ai-sdk/mcp @expo/mcp-tunnel mcp-proxy @mcp-ui/server @storybook/addon-mcp @storybook/mcp @mastra/mcp
@langchain/mcp-adapters mcp-handler @metorial/mcp-session @hono/mcp mcp-framework @rekog/mcp-nest expo-mcp use-mcp
@gongrzhe/server-gmail-autoauth-mcp @vercel/mcp-adapter @wong2/mcp-cli @testsprite/testsprite-mcp @clerk/mcp-tools
@composio/mcp mcp-hello-world @mcp-use/cli mcp-use @winor30/mcp-server-datadog @antv/mcp-server-chart mcp-mermaid
@dynatrace-oss/dynatrace-mcp-server @cocal/google-calendar-mcp @shortcut/mcp @drawio/mcp @currents/mcp workers-mcp
@z_ai/mcp-server mcp-server-code-runner @aashari/mcp-server-atlassian-jira backlog-mcp-server argocd-mcp
@railway/mcp @ivotoby/openapi-mcp-server @benborla29/mcp-server-mysql openapi-mcp-generator
@a-bonus/google-docs-mcp mcp-server @piotr-agier/google-drive-mcp @cyanheads/git-mcp-server
@forestadmin/mcp-server mcp @mintlify/mcp @sveltejs/mcp @google-cloud/gcloud-mcp @google-cloud/observability-mcp
@amap/amap-maps-mcp-server @openbnb/mcp-server-airbnb @modelcontextprotocol/sdk @modelcontextprotocol/server-map
@modelcontextprotocol/server-redis @zed/server-filesystem
"""
POPULAR_ON_PYPI = """
mcp fastmcp fastapi-mcp langchain-mcp-adapters databricks-mcp pdf-tools-mcp mcp-use duckduckgo-mcp cli-mcp-server
arcade-mcp-server lean-lsp-mcp office-powerpoint-mcp-server mcpadapt snowflake-labs-mcp mcpforunityserver ha-mcp
jcodemunch-mcp django-mcp-server opensearch-mcp-server-py fast-agent-mcp notebooklm-mcp-cli mcp-scholarly tilt-mcp
mcp-yahoo-finance mysql-mcp-server pagerduty-mcp analytics-mcp mcp-ocr uipath-mcp mcp-server
awslabs-iam-mcp-server mcp-proxy-for-aws awslabs-memcached-mcp-server awslabs-redshift-mcp-server mcp-server-gist
MCP_Server_Git
"""


def test_real_servers_that_many_use_are_not_suspected() -> None:
    assert {each: found for each in POPULAR.split() if (found := find_look_alike("npm", each))} == {}
    assert {each: found for each in POPULAR_ON_PYPI.split() if (found := find_look_alike("pypi", each))} == {}


@pytest.mark.parametrize("kind", ["npm", "pypi", "oci"])
def test_no_known_server_is_suspected(kind: PackageKind) -> None:
    assert len(known_names(kind)) > 10
    assert [each for each in known_names(kind) if find_look_alike(kind, each)] == []


@examples(200)
@given(st.text(max_size=300), st.sampled_from(["npm", "pypi", "oci"]))
def test_any_text_has_an_answer(name: str, kind: PackageKind) -> None:
    found = find_look_alike(kind, name)
    assert found is None or found in known_names(kind)
