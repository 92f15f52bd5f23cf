"""Whether a browser would be seen, and where to create tokens by hand."""

import pytest

from dynamic_mcp.oauth.browser import has_browser, is_openable, open_link
from dynamic_mcp.oauth.services import token_hint


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "w"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux", False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x", "BROWSER": "b"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
        ({"CI": "1"}, "darwin", False),
    ],
)
def test_a_browser_opens_only_where_it_can_be_seen(
    environment: dict[str, str], platform: str, expected: bool
) -> None:
    assert has_browser(environment, platform) is expected


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "--help", "", "vscode://x"])
async def test_only_web_pages_are_opened(url: str) -> None:
    assert not await open_link(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com@evil.example/",
        "https://github.com:443@evil.example/",
        "https://@evil.example/",
        "https://github.com\\@evil.example/",
        "https:////github.com@evil.example/",
        "https://github\t.com@evil.example/",
        "https://[github.com@evil.example/",
        "https://",
    ],
)
async def test_no_page_is_opened_whose_address_has_a_user_name_or_no_host(url: str) -> None:
    assert not is_openable(url)
    assert not await open_link(url)


@pytest.mark.parametrize("url", ["https://auth.example/authorize?login_hint=a@b.example", "http://127.0.0.1:1/x/@y"])
def test_an_at_sign_behind_the_host_is_no_user_name(url: str) -> None:
    assert is_openable(url)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("api.githubcopilot.com", "GitHub"),
        ("gitlab.com", "GitLab"),
        ("gitlab.mycompany.example", "gitlab.mycompany.example/-/user_settings"),
        ("mcp.sentry.dev", "Sentry"),
        ("mcp.linear.app", "Linear"),
        ("mcp.notion.com", "Notion"),
        ("mcp.slack.com", "Slack"),
        ("x.grafana.net", "Grafana"),
        ("mcp.atlassian.com", "Jira"),
        ("bindings.mcp.cloudflare.com", "Cloudflare"),
        ("mcp.datadoghq.com", "Datadog"),
        ("mcp.pagerduty.com", "PagerDuty"),
        ("mcp.honeycomb.io", "Honeycomb"),
        ("notgithub.com", "in the settings"),
    ],
)
def test_popular_services_have_a_hint(host: str, named: str) -> None:
    assert named in token_hint(f"https://{host}/mcp")
