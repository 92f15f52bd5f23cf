"""The names of fields in the files of tools, and their meanings. A tool's own map takes precedence over this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dynamic_mcp.importer.adapter import MILLISECONDS, SECONDS, Meaning, TimeoutField

T = TypeVar("T")


def _by_name(names: Mapping[T, str]) -> Mapping[str, T]:
    return {name: meaning for meaning, words in names.items() for name in words.split()}


COMMON: Mapping[str, Meaning | TimeoutField] = _by_name(
    {
        Meaning.COMMAND: "command cmd executable",
        Meaning.ARGS: "args arguments",
        Meaning.ENV: "env environment envs",
        Meaning.ENV_NAMES: "env_vars env_keys",
        Meaning.ENV_FILE: "envFile env_file",
        Meaning.CWD: "cwd working_directory workingDirectory",
        Meaning.URL: "url serverUrl server_url uri baseUrl base_url",
        Meaning.HTTP_URL: "httpUrl",
        Meaning.WS_URL: "tcp",
        Meaning.HEADERS: "headers http_headers httpHeaders requestInit.headers requestOptions.headers",
        Meaning.HEADERS_FROM_ENV: "env_http_headers header_env",
        Meaning.BEARER: "bearer_token bearerToken apiKey api_key",
        Meaning.BEARER_FROM_ENV: "bearer_token_env_var bearerTokenEnvVar bearerTokenEnv bearer_token_env",
        Meaning.TYPE: "type transport transportType",
        Meaning.ENABLED: "enabled isActive active",
        Meaning.DISABLED: "disabled",
        Meaning.INCLUDE: "includeTools enabledTools enabled_tools available_tools allowedTools",
        Meaning.EXCLUDE: "excludeTools disabledTools disabled_tools",
        Meaning.TOOLS: "tools",
        Meaning.OAUTH: "oauth auth oauthClient",
        Meaning.CLIENT_ID: "oauth_client_id",
        Meaning.CLIENT_SECRET: "oauth_client_secret",
        Meaning.REDIRECT_PORT: "oauth_callback_port",
        Meaning.SCOPES: "oauth_scopes oauthScopes scopes",
        Meaning.DESCRIPTION: "description",
        Meaning.NAME: "name",
        TimeoutField("tools"): "timeout",
        TimeoutField("tools", MILLISECONDS): "timeout_ms timeoutMs tool_timeout_ms toolTimeoutMs requestTimeoutMs",
        TimeoutField("tools", SECONDS): "tool_timeout_sec",
        TimeoutField("connect", SECONDS): "startup_timeout_sec",
        TimeoutField("connect", MILLISECONDS): "startup_timeout_ms startupTimeoutMs initTimeout connectionTimeout",
        TimeoutField("connect"): "connect_timeout connectTimeout",
        Meaning.APPROVAL: "autoApprove auto_approve autoApproveAll alwaysAllow trust permission permissions"
        " approval_mode default_tools_approval_mode requireApproval",
        Meaning.TOKENS: "oauth_token oauthToken oauth_tokens tokens",
        Meaning.HELPER: "headersHelper requestHeadersCommand",
        Meaning.SILENT: "$schema",
    }
)

OAUTH: Mapping[str, Meaning] = _by_name(
    {
        Meaning.CLIENT_ID: "clientid",
        Meaning.CLIENT_SECRET: "clientsecret",
        Meaning.SCOPES: "scope scopes",
        Meaning.REDIRECT_PORT: "callbackport redirectport redirecturi redirecturl",
        Meaning.METADATA_URL: "authservermetadataurl metadataurl",
        Meaning.SILENT: "enabled",
        Meaning.TOKENS: "token tokens accesstoken refreshtoken idtoken tokentype expiresat expiresin codeverifier",
    }
)
"""By the name in lower case and without `_` and `-`: the fields of an object with OAuth settings."""

TYPES: Mapping[str, str] = _by_name(
    {
        "stdio": "stdio local command process",
        "http": "http https streamable streamablehttp streamablehttps httpstream httpstreamable",
        "url": "remote url",
        "sse": "sse httpsse",
        "ws": "ws wss websocket tcp",
    }
)
"""By the name in lower case letters only: the kinds of server. `url` is a remote one whose kind is detected."""
