"""What people see: plain HTML without scripts, which no other page can put into a frame."""

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
    """Return what every page has: that nothing may run in it, and that nobody stores or frames it."""
    style = b64encode(sha256(_STYLE.encode()).digest()).decode()
    # no `form-action`: browsers would apply it to where the answer to the form redirects, and so to every client
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
    """Return a page, with `more` headers; `content` is HTML."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    )
    return Response(status, (*headers(), *more), text.encode())


def error_page(why: str, status: int = 400, *, hint: str = "Go back to your program and begin again.") -> Response:
    """Return a page that says why it does not go on. Nobody is redirected: the client may not be what it says."""
    return page("This did not work", paragraphs([f"{why[:1].upper()}{why[1:]}.", hint]), status)


def paragraphs(texts: Iterable[str]) -> str:
    """Return texts as paragraphs."""
    return "".join(f"<p>{escape(each)}</p>" for each in texts)
