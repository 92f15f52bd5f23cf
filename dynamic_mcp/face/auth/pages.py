"""HTML pages for users: plain, without scripts, and not framed by other pages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from html import escape

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import NO_STORE, Headers

_STYLE = (
    "body{font-family:sans-serif;line-height:1.5;max-width:36em;margin:3em auto;padding:0 1em}"
    "h1{font-size:1.4em}dt{font-weight:bold}dd{margin:0 0 .6em;overflow-wrap:anywhere}"
    ".warning{border-left:.3em solid #b50;padding:.2em 1em;background:#fff4e8;color:#000}"
    "button{font-size:1em;padding:.5em 1.5em;margin-right:1em}"
)


@cache
def headers() -> Headers:
    """Return the headers of every page: nothing may run in it, be stored, or frame it."""
    style = b64encode(sha256(_STYLE.encode()).digest()).decode()
    # no `form-action`: browsers would apply it to the redirects that answer a form, and so to every client
    policy = f"default-src 'none'; style-src 'sha256-{style}'; frame-ancestors 'none'; base-uri 'none'"
    return (
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"x-frame-options", b"DENY"),
        (b"x-content-type-options", b"nosniff"),
        # with `no-referrer`, browsers would send `Origin: null` with our own form
        (b"referrer-policy", b"same-origin"),
        *NO_STORE,
    )


def page(title: str, content: str, status: int = 200, more: Headers = ()) -> Response:
    """Return a page; `content` is HTML, `more` are further headers."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    )
    return Response(status, (*headers(), *more), text.encode())


def error_page(why: str, status: int = 400, *, hint: str = "Go back to your application and try again.") -> Response:
    """Return a page with an error. It never redirects: the client may not be the one that it claims to be."""
    return page("This did not work", paragraphs([f"{why[:1].upper()}{why[1:]}.", hint]), status)


def paragraphs(texts: Iterable[str]) -> str:
    """Return texts as HTML paragraphs."""
    return "".join(f"<p>{escape(each)}</p>" for each in texts)
