"""Pages for creating a token by hand, for the most popular services."""

from __future__ import annotations

from urllib.parse import urlsplit

# By the end of the server's host name; from the vendors' documentation.
_HINTS = {
    "githubcopilot.com": "GitHub: https://github.com/settings/personal-access-tokens",
    "github.com": "GitHub: https://github.com/settings/personal-access-tokens",
    "gitlab.com": "GitLab: https://gitlab.com/-/user_settings/personal_access_tokens",
    "sentry.dev": "Sentry: https://sentry.io/settings/account/api/auth-tokens/",
    "sentry.io": "Sentry: https://sentry.io/settings/account/api/auth-tokens/",
    "linear.app": "Linear: https://linear.app/settings/account/security",
    "notion.com": "Notion: https://www.notion.so/profile/integrations",
    "notion.so": "Notion: https://www.notion.so/profile/integrations",
    "slack.com": "Slack: https://api.slack.com/apps (an app's `OAuth & Permissions`)",
    "grafana.com": "Grafana: in your stack, Administration > Users and access > Service accounts",
    "grafana.net": "Grafana: in your stack, Administration > Users and access > Service accounts",
    "atlassian.com": "Jira: https://id.atlassian.com/manage-profile/security/api-tokens",
    "atlassian.net": "Jira: https://id.atlassian.com/manage-profile/security/api-tokens",
    "cloudflare.com": "Cloudflare: https://dash.cloudflare.com/profile/api-tokens",
    "datadoghq.com": "Datadog: Organization Settings > Access Tokens",
    "datadoghq.eu": "Datadog: Organization Settings > Access Tokens",
    "pagerduty.com": "PagerDuty: My Profile > User Settings > Create API User Token",
    "honeycomb.io": "Honeycomb: https://ui.honeycomb.io/account (API keys)",
}


def token_hint(server_url: str) -> str:
    """Return a hint at the place to create a token for a server."""
    host = (urlsplit(server_url).hostname or "").lower()
    for end, hint in _HINTS.items():
        if host == end or host.endswith(f".{end}"):
            return hint
    if "gitlab" in host:  # often self-hosted
        return f"GitLab: https://{host}/-/user_settings/personal_access_tokens"
    return f"in the settings of the service at `{host}`, often under `API` or `access tokens`"
