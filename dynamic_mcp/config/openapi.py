"""A server that is an HTTP service with an OpenAPI document: where the document and the service are."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from dynamic_mcp.config import form
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.resolved import ApiDocument, Remote
from dynamic_mcp.config.substitute import Substitution, Surroundings, expand, resolve_path
from dynamic_mcp.openapi.document import MAX_BYTES, BadDocument, is_url
from dynamic_mcp.openapi.service import Selection, find_base_url_in
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason


def resolve_api(
    at: Keys, server: form.OpenApiEntry, *, texts: Substitution, surroundings: Surroundings
) -> Remote | None:
    """Return the service, without its login. Return None, with a failure in `texts`, if it cannot be used."""
    url = "" if server.url is None else _fill_url((*at, "url"), server.url, texts)
    failure_count = len(texts.failures)
    if is_url(server.openapi):
        location, digest = texts.fill_url((*at, "openapi"), server.openapi), ""
        found = _origin_of(location) if len(texts.failures) == failure_count else ""
    else:
        location = str(resolve_path(texts.fill((*at, "openapi"), server.openapi, is_required=True), surroundings))
        digest, found = _read_file((*at, "openapi"), location, texts, needs_url=not url)
        url = url or found
    if len(texts.failures) != failure_count or not (url or found):
        return None
    return Remote(
        kind=None,
        url=url or found,
        headers={name: texts.fill_header((*at, "headers", name), text) for name, text in server.headers.items()},
        query={name: texts.fill((*at, "query", name), text, may_look_up=True) for name, text in server.query.items()},
        api=ApiDocument(
            location=location,
            digest=digest,
            base_url=url,
            include=server.include,
            exclude=server.exclude,
            slashes=server.slashes,
            has_login=server.oauth is not None,
        ),
    )


def document_file(written: str, variables: Mapping[str, str], surroundings: Surroundings) -> Path | None:
    """Return the file of a document, or None for one at a URL."""
    return None if is_url(written) else resolve_path(expand(written, variables).text, surroundings)


def make_selection(remote: Remote, api: ApiDocument) -> Selection:
    """Return what the config says of the document of a service."""
    has_login = api.has_login or "@" in urlsplit(remote.url).netloc
    cookies = (value for name, value in remote.headers.items() if name.lower() == "cookie")
    return Selection(
        location=api.location,
        base_url=api.base_url,
        include=api.include,
        exclude=api.exclude,
        slashes=api.slashes,
        headers=(*remote.headers, *(["authorization"] if has_login else [])),
        query=tuple(remote.query),
        cookies=tuple(pair.partition("=")[0].strip() for value in cookies for pair in value.split(";")),
    )


def _fill_url(at: Keys, written: str, texts: Substitution) -> str:
    url = texts.fill_url(at, written)
    if urlsplit(url).query or urlsplit(url).fragment:
        texts.fail(at, "must have no query: `query` has what is sent with each request")
    return url


def _origin_of(location: str) -> str:
    """Return the root of the site that a document is on, with the name and password before it."""
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.netloc}/"


def _read_file(at: Keys, location: str, texts: Substitution, *, needs_url: bool) -> tuple[str, str]:
    """Return a digest of the document, by which a change is noticed, and the URL of the service if it is needed."""
    try:
        data = read_bytes(Path(location), most=MAX_BYTES)
        url = find_base_url_in(data, location) if needs_url else ""
    except OSError as exc:
        texts.fail(at, f"`{location}` cannot be read: {os_reason(exc)}")
        return "", ""
    except BadDocument as exc:
        texts.fail(at, f"`{location}` {exc}" + (f"; {exc.hint}" if exc.hint else ""))
        return "", ""
    return sha256(data).hexdigest(), url
