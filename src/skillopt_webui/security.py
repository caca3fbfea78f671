"""Who has access: the request's Host and Origin, the token, and headers that isolate the page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from skillopt_webui.settings import LOOPBACK_NAMES, Settings, is_loopback

COOKIE = "skillopt_session"
HEADER = "X-SkillOpt"
"""A header that no other site's page can send without asking first, and we allow none."""
GUESS_PAUSE = 0.5
"""Seconds before a wrong token is refused: guessing is slow."""
OPEN = ("/", "/api/login", "/api/session")
"""What can be had without the token, besides the page's own scripts and styles."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def guard(settings: Settings) -> Middleware:
    """The middleware that every request goes through."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if problem := refusal(request, settings):
            return _sealed(web.json_response({"error": problem[1]}, status=problem[0]))
        try:
            response = await handler(request)
        except web.HTTPException as error:
            _seal(error)
            raise
        return _sealed(response)

    return middleware


def refusal(request: web.Request, settings: Settings) -> tuple[int, str] | None:
    """Why a request is refused: a status and a sentence; None where it may pass."""
    if not host_allowed(request.host, settings):
        return 403, f"This page is not served under the name {request.host!r}; start it with --allow-host NAME."
    origin = request.headers.get("Origin")
    if origin is not None and not _same_origin(origin, request):
        return 403, "The request comes from another site."
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site in {"cross-site", "same-site"} and request.headers.get("Sec-Fetch-Mode") != "navigate":
        return 403, "The request comes from another site."
    if request.method not in {"GET", "HEAD"} and request.headers.get(HEADER) != "1":
        return 403, f"A request that changes something carries the header {HEADER}: 1."
    if request.path in OPEN or request.path.startswith("/static/") or has_session(request, settings):
        return None
    return 401, "The token is needed; it was printed where the page was started."


def host_allowed(host: str, settings: Settings) -> bool:
    """Names that other sites could point at this machine are refused; addresses cannot be. A port may be a tunnel's."""
    name = _host_name(host)
    if name in settings.allowed_hosts or name in LOOPBACK_NAMES or name.strip("[]") == settings.host.lower():
        return True
    return not is_loopback(settings.host) and _is_address(name)


def has_session(request: web.Request, settings: Settings) -> bool:
    if not settings.token:
        return True
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if given:
        return _equal(given, settings.token)
    return _equal(request.cookies.get(COOKIE, ""), _session(settings))


async def login(request: web.Request, settings: Settings, given: str) -> web.Response:
    """A cookie for the right token. It holds over a restart of the server, and says nothing of the token."""
    if not _equal(given.strip(), settings.token):
        await asyncio.sleep(GUESS_PAUSE)
        return web.json_response({"error": "The token is wrong."}, status=401)
    response = web.json_response({"ok": True})
    response.set_cookie(
        COOKIE,
        _session(settings),
        httponly=True,
        samesite="Strict",
        secure=request.secure,
        path="/",
        max_age=30 * 86400,
    )
    return response


def _equal(a: str, b: str) -> bool:
    """In a time that does not depend on how much is right; also for bytes that are not text."""
    return hmac.compare_digest(a.encode("utf-8", "surrogatepass"), b.encode("utf-8", "surrogatepass"))


def _session(settings: Settings) -> str:
    return hmac.new(settings.token.encode(), b"skillopt-webui-session", hashlib.sha256).hexdigest()


def _same_origin(origin: str, request: web.Request) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:  # an address with half a bracket
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == request.host.lower()


def _host_name(host: str) -> str:
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() and (not name.startswith("[") or name.endswith("]")) else host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _sealed(response: web.StreamResponse) -> web.StreamResponse:
    _seal(response)
    return response


def _seal(response: web.StreamResponse) -> None:
    if response.prepared:
        return
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
