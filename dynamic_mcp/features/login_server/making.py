"""Makes the login server of a config, and what identifies people for it."""

from __future__ import annotations

from pathlib import Path

from dynamic_mcp.config import auth
from dynamic_mcp.config.http import Http
from dynamic_mcp.face.auth.forwarded import ForwardedProvider
from dynamic_mcp.features.login_server.addresses import Addresses
from dynamic_mcp.features.login_server.database import file_for
from dynamic_mcp.features.login_server.provider import LoginProvider


def make_provider(config: auth.Login, http: Http, config_file: Path) -> LoginProvider:
    """Return the provider of an entry of `settings.http.auth`."""
    file = file_for(config_file)
    if config.oidc is not None:
        from dynamic_mcp.features.login_server.oidc import OidcIdentityProvider

        return LoginProvider(config, http, file, OidcIdentityProvider(config.oidc, Addresses(http)))
    forwarded = next((each for each in http.auth if isinstance(each, auth.Forwarded)), None)
    assert forwarded is not None, "the config was checked to have one"
    return LoginProvider(config, http, file, ForwardedProvider(forwarded).identify)
