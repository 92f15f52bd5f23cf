"""Imports the modules that a daemon or HTTP server may need later, before an upgrade can replace their files."""

from __future__ import annotations

import asyncio
import logging
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import dynamic_mcp
from dynamic_mcp.config.resolved import Config, FeatureServer, Remote, SkillFolders
from dynamic_mcp.errors import Upgraded
from dynamic_mcp.features.table import FEATURES

log = logging.getLogger("dynamic_mcp")

# Modules for serving, also with another version of the config.
_ROOMS = (
    "config", "embeddings", "face", "groups", "host", "mcp", "middleware", "oauth", "observe", "openapi", "packs",
    "policy", "proxy", "search", "session", "system", "tools", "upstream", "web",
)  # fmt: skip
# Third-party packages that only functions of these packages import.
_PACKAGES = ("dotenv", "jsonpath_ng.ext.parser", "jsonschema_rs", "re2", "Stemmer")
# Needs an optional package, and is loaded at the start if the config asks for it.
_OPTIONAL = ("dynamic_mcp.config.cel",)
# Modules of features that only commands use.
_OF_COMMANDS = ("check", "commands", "probe", "status")
_OF_THE_PAGE = ("page",)  # which few open
_FOR_HTTP = ("dynamic_mcp.face.auth", "dynamic_mcp.face.http", "dynamic_mcp.host.http_", "dynamic_mcp.host.ui")
# These import the MCP SDK.
_FOR_LOGINS = tuple(f"dynamic_mcp.oauth.{name}" for name in ("discovery", "login", "registration", "tokens"))
# These import authlib, cryptography and joserfc. Logins to servers may need them too.
_FOR_TOKENS = ("dynamic_mcp.web.endpoints", "dynamic_mcp.web.jwk")
_FOR_DOCUMENTS = ("dynamic_mcp.config.openapi", "dynamic_mcp.openapi", "dynamic_mcp.upstream.openapi")
# These import pydantic, and describe the errors of an invalid config.
_FOR_ERRORS = ("dynamic_mcp.config.model", "dynamic_mcp.config.problems", "dynamic_mcp.config.schema")


async def load_modules(config: Config, *, serves_http: bool, can_hand_over: bool) -> None:
    """Import each module in a thread, one after the other, so that calls go on meanwhile.

    A process that can hand over to a new version skips large modules that are seldom needed.
    """
    for name in list_modules(config, serves_http=serves_http, can_hand_over=can_hand_over):
        try:
            await asyncio.to_thread(import_module, name)
        except Upgraded:
            return
        except (ImportError, AssertionError, OSError) as exc:  # it is for another system, or no descriptor is free
            log.debug("`%s` cannot be loaded: %s", name, exc)
    log.debug("preloaded the modules for serving")


def list_modules(config: Config, *, serves_http: bool, can_hand_over: bool) -> Iterator[str]:
    """Yield the names of the modules that serving this config may need."""
    yield from _PACKAGES
    has_documents = any(group.is_api for group in config.groups)
    if (
        not can_hand_over
        or has_documents
        or any(isinstance(group.upstream, SkillFolders | FeatureServer) for group in config.groups)
    ):
        yield "ruamel.yaml"  # the front matter of skills, and documents
    unwanted: tuple[str, ...] = _OPTIONAL
    if can_hand_over:
        unwanted += _FOR_ERRORS
    if serves_http:
        yield "cryptography.hazmat.primitives.ciphers.aead"
    else:
        unwanted += _FOR_HTTP
    has_remote = any(isinstance(group.upstream, Remote) and group.upstream.may_log_in for group in config.groups)
    if not has_remote:
        unwanted += _FOR_LOGINS
    if serves_http or has_remote:
        yield "authlib.oauth2.rfc7523"
    else:
        unwanted += _FOR_TOKENS
    if can_hand_over and not has_documents:
        unwanted += _FOR_DOCUMENTS
    for room in _ROOMS:
        yield from _walk_room(room, unwanted)
    for feature in FEATURES:
        if feature.section:
            yield f"{feature.package}.{feature.section.partition(':')[0]}"
        may_come = not feature.extra and (serves_http or not feature.is_large)
        if feature.serves and (may_come or feature.is_wanted(config)):
            room = f"features.{feature.name}"
            shares = getattr(config.cluster, "store", None) is not None
            without = (*_OF_COMMANDS, *_OF_THE_PAGE, *(() if shares else feature.store_modules))
            yield from _walk_room(room, tuple(f"dynamic_mcp.{room}.{part}" for part in without))


def _walk_room(room: str, unwanted: tuple[str, ...]) -> Iterator[str]:
    folders = [f"{folder}/{room.replace('.', '/')}" for folder in dynamic_mcp.__path__]
    yield from _walk(f"dynamic_mcp.{room}", folders, unwanted)


def _walk(package: str, folders: list[str], unwanted: tuple[str, ...]) -> Iterator[str]:
    for module in pkgutil.iter_modules(folders):
        name = f"{package}.{module.name}"
        if name.startswith(unwanted):
            continue
        yield name
        if module.ispkg:
            yield from _walk(name, [f"{folder}/{module.name}" for folder in folders], unwanted)
