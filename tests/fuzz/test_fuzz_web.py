"""The web page, asked for anything: an answer or a refusal in words, and nothing from outside of its folders."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import shutil
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from aiohttp import web
from hypothesis import strategies as st

import hostile
from campaign import holds_for
from folders import changed, deferred, finished, workspace
from skillopt.errors import UserError
from skillopt_webui import security
from skillopt_webui.allowed import check_allowed
from skillopt_webui.answers import STATE
from skillopt_webui.forms import KINDS, TEMPLATES, parse
from skillopt_webui.places import inside, readable
from skillopt_webui.server import make_app
from skillopt_webui.settings import make_settings
from support import REPO

pytestmark = pytest.mark.fuzz

SECRET = "OUTSIDE-7c1d"
TOKEN = "a token of some length"


class Page:
    """The real server on loopback in a thread of its own. Only that processes are started is left out."""

    def __init__(self, token: str = "") -> None:
        security.GUESS_PAUSE = 0
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # complaints about requests that are no HTTP
        root = workspace()
        for name in ("configs/sim", "data/sim"):
            shutil.copytree(REPO / name, root / name, dirs_exist_ok=True)
        (root / ".env").write_text(f"KEY={SECRET}\n")
        (root / ".hidden.md").write_text(SECRET)
        self.outside = root.parent / "outside"
        self.outside.mkdir(exist_ok=True)
        for name in ("best_skill.md", "x.yaml", "config.yaml", "summary.json"):
            (self.outside / name).write_text(f"# {SECRET}\n")
        link = root / "outputs" / "sim" / "link"
        if not link.is_symlink():
            link.symlink_to(self.outside)
        self.settings = make_settings(workspace=root, token=token)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self.loop).result()

    async def _start(self) -> int:
        app = make_app(self.settings)
        app[STATE].launches.start = self._no_start  # type: ignore[method-assign]
        app[STATE].questions.ask = self._no_question  # type: ignore[method-assign]
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    def _no_start(self, kind: str, title: str, config: str, arguments: list[str], run: str | None = None) -> Any:
        """What would be started stays within the folders."""
        for word in arguments:
            if word.startswith("/"):
                assert inside(Path(word), readable(self.settings)), word
                assert SECRET not in Path(word).read_text(encoding="utf-8", errors="replace")
        if run is None and kind == "train":
            check_allowed(parse(config), self.settings)
        raise UserError("not started")

    async def _no_question(self, question: str, config: str) -> Any:
        check_allowed(parse(config), self.settings)
        raise UserError("not asked")

    def send(self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
        """Bytes as they are: no client's own care stands between."""
        given = {name.lower() for name, _ in headers}
        lines = [(b"Host", b"127.0.0.1")] * (b"host" not in given) + [(b"Connection", b"close"), *headers]
        lines += [(b"Content-Length", str(len(body)).encode())]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(method + b" " + target + b" HTTP/1.1\r\n" + head + b"\r\n" + body)
            received = b""
            while chunk := connection.recv(65536):
                received += chunk
                if b"text/event-stream" in received:  # which never ends
                    break
        status = re.match(rb"HTTP/1\.[01] (\d{3})", received)
        assert status, received[:200]
        return int(status[1]), received

    def check(self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
        status, received = self.send(method, target, headers, body)
        assert status < 500, (status, target, received[-300:])
        assert SECRET.encode() not in received, target
        return status, received


@functools.cache
def page() -> Page:
    return Page()


@functools.cache
def guarded() -> Page:
    return Page(TOKEN)


ROUTES = [
    *("/", "/static/{x}", "/api/session", "/api/runs", "/api/configs", "/api/skills", "/api/launches", "/{x}"),
    *("/api/launches/{x}", "/api/runs/{n}/{x}/{x}"),
    *(
        f"/api/runs/{{n}}/{{b}}/{{r}}{tail}"
        for tail in (
            *("", "/stream", "/steps/{n}", "/epochs/{n}", "/skills/{n}", "/costs", "/failures"),
            *("/trajectory", "/conflicts", "/config", "/export/best", "/export/v{n}", "/{x}"),
        )
    ),
]
RUN = "/api/runs/{n}/{b}/{r}"
POSTS = {
    "/api/login": ["token"],
    "/api/configs/load": ["run", "path", "template"],
    "/api/configs/check": ["yaml", "set"],
    "/api/configs/plan": ["yaml"],
    "/api/launch": ["yaml", "title", "fresh"],
    "/api/evaluate": ["skill", "split", "run", "config"],
    "/api/compare": ["a", "b", "split", "repeats", "run", "config"],
    "/api/diff": ["a", "b"],
    "/api/sparks": ["ids"],
    "/api/launches/{x}/stop": [],
    f"{RUN}/resume": ["set"],
    f"{RUN}/pause": [],
    f"{RUN}/stop": [],
    f"{RUN}/conflicts/{{n}}-{{n}}": ["choice", "text"],
}
"""What each route reads of the body."""
ESCAPES = ["..", "../..", "../../..", ".webui", "link", "sim/link", ".env", ".hidden.md", "\x00", "a" * 300, "é" * 200]
odd = st.one_of(st.sampled_from(ESCAPES), hostile.words, hostile.texts.map(lambda text: text[:400]))
small = st.sampled_from(["0", "1", "2"])
digits = st.one_of(small, small, st.sampled_from(["0001", "1" * 9, "9" * 5000, "١", "²", "-1"]), odd)
QUERY = ["a", "b", "id", "item", "version", "train", "gate", "slow", "since", "offset", "x"]
IDS = ["0001-001", "gate-0001-001", "slow-01-001", "0000", "9" * 400 + "-", "train-001"]


def escaped(text: str, raw: bool) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return quote_from_bytes(data, safe="/.%" if raw else "")


@st.composite
def targets(draw: st.DrawFn, *routes: str) -> bytes:
    """A route of the page with anything in its places, and anything asked for behind it."""
    here = {"{b}": "sim", "{r}": finished().root.name}
    path = draw(st.sampled_from(routes))
    for place in ("{x}", "{n}", "{b}", "{r}"):
        while place in path:
            known = place in here and draw(st.integers(0, 4)) > 0
            text = here[place] if known else draw(digits if place == "{n}" else odd)
            path = path.replace(place, escaped(text, draw(st.booleans())), 1)
    names = draw(st.lists(st.sampled_from(QUERY), max_size=3))
    values = st.one_of(st.sampled_from([*IDS, "train-000"]), digits)
    query = "&".join(f"{name}={escaped(draw(values), False)}" for name in names)
    return (f"{path}?{query}" if names else path).encode()


names = st.one_of(
    st.sampled_from(
        ["configs/sim/default.yaml", "data/sim", "../x", "/etc/passwd", "outputs/sim/link/best_skill.md", "0"]
    ),
    st.deferred(
        lambda: st.sampled_from([f"0/sim/{finished().root.name}", "0/sim/link", str(page().outside / "x.yaml")])
    ),
    odd,
)
SEMI = st.one_of(
    st.sampled_from([*TEMPLATES.values(), "train: {x: .nan}", "env: {options: {2024-01-01: .inf}}"]), hostile.texts
)
skills = st.fixed_dictionaries({}, optional={"run": names, "version": digits | hostile.json_values, "file": names})
changes = st.dictionaries(st.sampled_from(sorted(KINDS)) | odd, SEMI | st.none() | hostile.json_values, max_size=3)
FIELDS = {
    "yaml": SEMI,
    "set": changes,
    "skill": skills,
    "a": skills,
    "b": skills,
    "split": st.sampled_from(["val", "test"]),
    "template": st.sampled_from(sorted(TEMPLATES)),
    "choice": st.sampled_from(["a", "b", "own", "neither"]),
    "ids": st.lists(names, max_size=3),
}
"""What a field should be, more or less; now and then it is anything else."""
anything = st.one_of(
    hostile.json_values.map(hostile.as_json),
    hostile.raw,
    st.tuples(hostile.depths, st.sampled_from(["[]", "{}"])).map(lambda d: hostile.deep(d[0], "1", d[1]).encode()),
)


def body_for(route: str) -> st.SearchStrategy[bytes]:
    fields = {
        key: st.one_of(FIELDS.get(key, names), FIELDS.get(key, names), hostile.json_values) for key in POSTS[route]
    }
    return st.one_of(st.fixed_dictionaries({}, optional=fields).map(hostile.as_json), anything)


posts = st.sampled_from(sorted(POSTS)).flatmap(lambda route: st.tuples(targets(route), body_for(route)))
header_values = st.one_of(
    st.sampled_from(
        [b"127.0.0.1", b"http://127.0.0.1", b"http://[", b"null", b"[::1]:x", b"Bearer \xff", b"a=b; c", b"gzip"]
    ),
    st.sampled_from(
        [b"application/json; charset=x", b"text/plain; charset=utf-16", b"\xff\xfe", b"9" * 5000, b"same-site"]
    ),
    hostile.raw.map(lambda data: data.translate(None, b"\r\n\x00")),
)
header_names = st.sampled_from(
    [
        b"Host",
        b"Origin",
        b"Authorization",
        b"Cookie",
        b"Content-Type",
        b"Accept-Encoding",
        b"Last-Event-ID",
        b"Sec-Fetch-Site",
    ]
)
headers = st.lists(st.tuples(header_names, header_values), max_size=2)
OURS = [(b"X-SkillOpt", b"1")]


@holds_for(targets(*ROUTES))
def test_no_address_makes_the_page_fail_or_show_what_lies_outside(target: bytes) -> None:
    _, received = page().check(b"GET", target, [], b"")
    assert b"not as it was written" not in received, "a name from outside was taken for damage"


@holds_for(posts)
def test_no_request_makes_the_page_fail_or_reach_outside(post: tuple[bytes, bytes]) -> None:
    try:
        page().check(b"POST", post[0], OURS, post[1])
    finally:
        finished().decisions.unlink(missing_ok=True)
        for path in (workspace() / "configs").glob("*.yaml"):
            path.unlink()


@holds_for(st.sampled_from([b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS"]), targets(*ROUTES, *POSTS), headers, anything)
def test_without_the_token_nothing_but_the_page_itself_is_given_whatever_the_headers_say(
    method: bytes, target: bytes, given: list[tuple[bytes, bytes]], body: bytes
) -> None:
    status, received = guarded().check(method, target, [*OURS, *given], body)
    path = target.partition(b"?")[0]
    if status < 400 and path not in {b"/", b"/api/session"}:
        assert path.startswith(b"/static/"), (status, target, received[:300])


VIEWS = [
    route.replace("{n}", "0", 1).replace("{b}", "sim") for route in ROUTES if "{r}" in route and "{x}" not in route
]


@holds_for(deferred(".json", ".jsonl", ".md"), targets(*VIEWS))
def test_a_run_in_which_anything_was_changed_makes_no_view_of_it_fail(
    change: tuple[str, bytes | None], target: bytes
) -> None:
    with changed(*change):
        page().check(b"GET", target, [], b"")


def test_the_page_is_really_asked() -> None:
    run = f"/api/runs/0/sim/{quote(finished().root.name)}"
    for tail in ("", "/steps/1", "/skills/1", "/costs", "/failures", "/conflicts", "/config", "/export/best"):
        status, _ = page().send(b"GET", (run + tail).encode(), [], b"")
        assert status == 200, tail
    status, received = page().send(b"POST", b"/api/configs/check", OURS, json.dumps({"yaml": "train: {}"}).encode())
    assert status == 200
    assert b'"valid":true' in received
