"""Access control: the request's Host and Origin, the token, and headers that isolate the page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from skillopt.record.directory import make_folder
from skillopt.record.files import read_text, write_atomic
from skillopt_webui.settings import LOOPBACK_NAMES, PageSettings, is_loopback

COOKIE = "skillopt_session"
HEADER = "X-SkillOpt"
"""A request that changes something must have this header. A page of a different site may send the header only if this
server allows it, and this server never does."""
GUESS_PAUSE = 0.5
"""After a wrong token from a network address, the next token from this address is checked only after this pause, in
seconds. Each wrong token doubles the pause."""
LONGEST_PAUSE = 5.0
"""The maximum number of seconds that a token waits. It is short, so that a user can log in while a program guesses
tokens."""
_WAITING = 5
"""The maximum number of tokens from one address that may wait at the same time; further tokens are refused."""
_REMEMBERED = 600.0
"""Seconds after which a wrong token is forgotten."""
_ADDRESSES = 10_000
"""The maximum number of addresses that are remembered."""
OPEN = ("/", "/api/login", "/api/session")
"""Paths that need no token. The page's own scripts and styles do not need a token either."""

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


@dataclass
class _Guesser:
    """The record of a network address that sent a wrong token."""

    pause: float = 0.0
    free: float = 0.0
    """The time from which the next token of this address is checked."""
    last: float = 0.0
    """The time of the last wrong token."""
    waiting: int = 0


class Door:
    """Admits requests that have the token, or the cookie that a login with the token returned.

    A token is checked only after the pause of its address, and only a few tokens from one address may wait. So a
    program with many connections guesses hardly faster than with one. Requests with a cookie never wait, because a
    cookie is too long to guess.
    """

    def __init__(self, settings: PageSettings) -> None:
        self._token = settings.token
        self._session = _session(settings) if settings.token else ""
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()

    async def admits(self, request: web.Request) -> bool:
        if not self._token or _equal(request.cookies.get(COOKIE, ""), self._session):
            return True
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return bool(given) and await self._is_token(request, given)

    async def login(self, request: web.Request, given: str) -> web.Response:
        """Answer the right token with a cookie. The cookie stays valid after a restart of the server, and does not
        reveal the token."""
        if not await self._is_token(request, given.strip()):
            return web.json_response({"error": "The token is wrong."}, status=401)
        response = web.json_response({"ok": True})
        response.set_cookie(
            COOKIE, self._session, httponly=True, samesite="Strict", secure=request.secure, path="/", max_age=30 * 86400
        )
        return response

    async def _is_token(self, request: web.Request, given: str) -> bool:
        address = _network(request.remote or "")
        await self._turn(address)
        if _equal(given, self._token):
            return True
        now, guesser = time.monotonic(), self._guessers.setdefault(address, _Guesser())
        guesser.pause = min(2 * guesser.pause or GUESS_PAUSE, LONGEST_PAUSE)
        guesser.free, guesser.last = max(guesser.free, now + guesser.pause), now
        self._guessers.move_to_end(address)
        while len(self._guessers) > _ADDRESSES:
            self._guessers.popitem(last=False)
        return False

    async def _turn(self, address: str) -> None:
        """Wait until a token from this address may be checked. Tokens are checked one by one; each waits a limited
        time."""
        now, guesser = time.monotonic(), self._guessers.get(address)
        if guesser is None or now - guesser.last > _REMEMBERED:
            self._guessers.pop(address, None)
            return
        at = min(max(guesser.free, now), now + LONGEST_PAUSE)
        if guesser.waiting >= _WAITING:
            text = '{"error": "Too many tokens from this address are waiting; try again in a few seconds."}'
            raise web.HTTPTooManyRequests(text=text, content_type="application/json", headers={"Retry-After": "5"})
        guesser.free = at + guesser.pause
        guesser.waiting += 1
        try:
            await asyncio.sleep(at - now)
        finally:
            guesser.waiting -= 1


def guard(settings: PageSettings, door: Door) -> Middleware:
    """The middleware that every request goes through."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if problem := await refusal(request, settings, door):
                return _sealed(web.json_response({"error": problem[1]}, status=problem[0]))
            response = await handler(request)
        except web.HTTPException as error:
            _seal(error)
            raise
        return _sealed(response)

    return middleware


async def refusal(request: web.Request, settings: PageSettings, door: Door) -> tuple[int, str] | None:
    """The status and the reason if a request is refused; None if it may pass."""
    if not host_allowed(request.host, settings):
        return 403, f"This page is not served under the name {request.host!r}; start it with --allow-host NAME."
    origin = request.headers.get("Origin")
    if origin is not None and not _same_origin(origin, request):
        return 403, "The request comes from another site."
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site in {"cross-site", "same-site"} and request.headers.get("Sec-Fetch-Mode") != "navigate":
        return 403, "The request comes from another site."
    if request.method not in {"GET", "HEAD"} and request.headers.get(HEADER) != "1":
        return 403, f"A request that changes something needs the header {HEADER}: 1."
    if request.path in OPEN or request.path.startswith("/static/") or await door.admits(request):
        return None
    return 401, "The token is missing; the terminal that started the page shows it."


def host_allowed(host: str, settings: PageSettings) -> bool:
    """True if the page may be served under a host name. False for names that other sites could point at this machine.
    Any port is allowed."""
    name = _host_name(host)
    if name in settings.allowed_hosts or name in LOOPBACK_NAMES or name.strip("[]") == settings.host.lower():
        return True
    return not is_loopback(settings.host) and _is_address(name)


def _equal(a: str, b: str) -> bool:
    """Compare two texts in constant time; they may contain invalid Unicode."""
    return hmac.compare_digest(a.encode("utf-8", "surrogatepass"), b.encode("utf-8", "surrogatepass"))


def _session(settings: PageSettings) -> str:
    """The cookie's value, made from the token and a random key that is stored with the page's records."""
    path = settings.records / "session.key"
    try:
        make_folder(path.parent, private=True)
        if not path.is_file():
            write_atomic(path, secrets.token_hex(32))
        key = read_text(path)
    except OSError:  # without a stored key, sessions end with the server
        key = secrets.token_hex(32)
    return hmac.new(key.encode(), settings.token.encode(), hashlib.sha256).hexdigest()


def _network(address: str) -> str:
    """The address itself if it is IPv4; for IPv6 its network, because one machine can have all addresses of such a
    network."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if known.version == 4 else str(ipaddress.ip_network((known, 64), strict=False))


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
