# ruff: noqa: E501 - a table of texts, one scene per line
"""A history of sessions with a coding agent: twelve corrections that come up again and again, among noise.

Each planted rule has several scenes (a request, the answer that breaks the rule, the answer that keeps it) and several
wordings of the correction, as people type them. Between them are requests without a correction, follow-ups, thanks,
changes of mind, phrases that only sound like a correction, and corrections that come up once.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

SERVICES = [
    "billing",
    "search",
    "ledger",
    "mailer",
    "gateway",
    "catalog",
    "profile",
    "uploads",
    "reports",
    "quota",
    "inbox",
    "shipping",
]


@dataclass(frozen=True)
class Planted:
    name: str
    rule: str
    scenes: tuple[tuple[str, str, str], ...]
    """Request, wrong answer, right answer."""
    wordings: tuple[str, ...]


RULES = (
    Planted(
        "pnpm",
        "Use pnpm, not npm.",
        (
            ("add date-fns to the {s} frontend", "Installed it:\n$ npm install date-fns", "$ pnpm add date-fns\nIt is in package.json now."),
            ("get the {s} app running locally", "Run `npm install` and then `npm run dev`.", "Run `pnpm install` and then `pnpm dev`."),
            ("bump vitest in {s}", "I ran npm install -D vitest@latest and the lockfile changed.", "I ran pnpm add -D vitest@latest; pnpm-lock.yaml changed."),
            ("set up the CI job for {s}", "The job runs npm ci and npm test.", "The job runs pnpm install --frozen-lockfile and pnpm test."),
        ),
        (
            "no, pnpm please",
            "we're on pnpm in this repo, npm writes a second lockfile",
            "npm again? It's pnpm here.",
            "Use pnpm instead of npm.",
            "please redo that with pnpm",
            "I keep saying this: pnpm. Delete the package-lock.json",
        ),
    ),
    Planted(
        "ticket",
        "Begin commit subjects with the ticket id, such as ENG-412.",
        (
            ("commit the {s} fix", "Committed: `Fix null check in {s}`", "Committed: `ENG-412: Fix null check in {s}`"),
            ("write a commit message for the retry change in {s}", "feat: retry {s} calls three times", "ENG-97: retry {s} calls three times"),
            ("commit this and push", "[main 3f2c] Update {s} config", "[main 81aa] ENG-233: update {s} config"),
        ),
        (
            "the commit subject needs the ENG ticket in front",
            "Where is the ticket number? Every commit starts with ENG-something.",
            "ticket id first please, ENG-…",
            "amend it, commits without an ENG number get rejected by the hook",
            "you left out the ticket again",
        ),
    ),
    Planted(
        "pytest",
        "Write tests as plain pytest functions, not unittest classes.",
        (
            ("write tests for the {s} parser", "class Test{S}(unittest.TestCase):\n    def test_empty(self):\n        self.assertEqual(parse(''), [])", "def test_empty_input_gives_nothing():\n    assert parse('') == []"),
            ("cover the error path of {s}", "import unittest\n\nclass ErrorPath(unittest.TestCase): ...", "def test_error_path(tmp_path):\n    with pytest.raises(ValueError): run(tmp_path)"),
            ("add a regression test for the {s} crash", "I added a unittest.TestCase with setUp and assertRaises.", "I added a pytest function with a fixture."),
        ),
        (
            "pytest functions, not unittest classes",
            "We don't do TestCase here. Plain functions and assert.",
            "can you make that pytest style? no classes",
            "this is unittest... the suite is pytest",
            "rewrite it for pytest",
        ),
    ),
    Planted(
        "iso",
        "Write dates as YYYY-MM-DD.",
        (
            ("put the release date of {s} into the changelog", "## 1.4.0 (03/11/2025)", "## 1.4.0 (2025-11-03)"),
            ("list the last three deploys of {s}", "Deploys: 11/2/25, 11/9/25 and 11/16/25.", "Deploys: 2025-11-02, 2025-11-09 and 2025-11-16."),
            ("when does the {s} certificate run out? note it in ops.md", "It expires on March 4th, 2026.", "It expires on 2026-03-04."),
        ),
        (
            "dates go year-month-day, like 2025-11-03",
            "ISO dates please, nobody can tell the day from the month there",
            "wrong date format, use YYYY-MM-DD",
            "is that the 3rd of November or the 11th of March? ISO format.",
            "write the date as ISO 8601",
        ),
    ),
    Planted(
        "generated",
        "Never edit files below gen/; change the schema and run make gen.",
        (
            ("add a field `region` to the {s} client", "Edited gen/{s}_client.py: added region.", "Added region to schema/{s}.yaml and ran `make gen`."),
            ("rename the enum in {s}", "I renamed it in gen/enums.py and in two callers.", "I renamed it in schema/enums.yaml, ran `make gen`, and fixed two callers."),
            ("the {s} type is missing `optional`", "Fixed in gen/types.py.", "Fixed in schema/types.yaml, then `make gen`."),
        ),
        (
            "don't touch gen/, that gets overwritten. Change the schema and run make gen",
            "that file is generated. Undo it and edit the schema",
            "everything under gen/ is build output!",
            "Nope. schema first, then make gen. Never by hand.",
            "you edited generated code, it'll be gone with the next make gen",
        ),
    ),
    Planted(
        "emoji",
        "No emoji in anything that is written to the repository.",
        (
            ("write the README section for {s}", "## 🚀 {S}\n\n✨ Fast and simple.", "## {S}\n\nFast and simple."),
            ("summarise what changed in {s}", "✅ Done! 🎉 Three files changed.", "Done. Three files changed."),
            ("draft the release note for {s}", "🔥 New: faster {s} queries", "New: faster {s} queries"),
        ),
        (
            "lose the emoji",
            "no emojis in docs please",
            "can we not have rockets in the README? plain text",
            "remove those icons, we don't use emoji",
            "again with the emoji...",
        ),
    ),
    Planted(
        "uv",
        "Run Python through uv run, not bare python or pip.",
        (
            ("run the {s} migration script", "$ python scripts/migrate_{s}.py\nModuleNotFoundError: sqlalchemy", "$ uv run scripts/migrate_{s}.py\nok"),
            ("install httpx for {s}", "$ pip install httpx", "$ uv add httpx"),
            ("profile the {s} worker", "python -m cProfile worker.py shows most time in json.", "uv run python -m cProfile worker.py shows most time in json."),
        ),
        (
            "uv run, not python",
            "everything goes through uv here, the system python has none of our deps",
            "that's the wrong interpreter. uv",
            "don't pip install into the system, this project is managed with uv",
            "prefix it with uv run please",
        ),
    ),
    Planted(
        "cents",
        "Amounts of money are integers in cents, never floats.",
        (
            ("add a discount to the {s} invoice", "total: float = price * 0.9", "total_cents: int = price_cents * 9 // 10"),
            ("store the fee in {s}", "fee = Column(Float)", "fee_cents = Column(Integer)"),
            ("compute the {s} refund", "refund = round(amount * 0.5, 2)", "refund_cents = amount_cents // 2"),
        ),
        (
            "money is in cents, as int. No floats",
            "never use float for amounts, we keep integer cents",
            "that will be off by a cent sooner or later. Integers please, in cents",
            "float for money?? cents!",
            "amounts are whole cents everywhere in this codebase",
        ),
    ),
    Planted(
        "run tests",
        "Run the tests before you say that the work is done.",
        (
            ("fix the flaky {s} test", "Fixed: the sleep is now an event. This should work.", "Fixed: the sleep is now an event. I ran the suite: 212 passed."),
            ("refactor the {s} loader", "Refactored into two functions. All done.", "Refactored into two functions. Test run: 88 passed, 0 failed."),
            ("make {s} tolerate an empty config", "An empty config now gives the defaults. Done!", "An empty config now gives the defaults; pytest: 41 passed."),
        ),
        (
            "did you run the tests? please always do before you tell me it's done",
            "run the suite first",
            "It fails. You have to execute the tests before saying done.",
            "'should work' is not good enough, show me the test run",
            "and the tests? run them",
        ),
    ),
    Planted(
        "british",
        "British spelling in prose.",
        (
            ("document the color option of {s}", "`color`: the color of the {s} badge; default gray.", "`colour`: the colour of the {s} badge; default grey."),
            ("write the intro of the {s} guide", "This guide explains how to customize and optimize {s}.", "This guide explains how to customise and optimise {s}."),
            ("describe the {s} cache behavior", "The behavior of the cache is configured at startup.", "The behaviour of the cache is configured at startup."),
        ),
        (
            "British spelling in the docs please",
            "it's colour / behaviour / customise for us",
            "we write UK English",
            "wrong side of the Atlantic: British English",
            "spelling! we're a UK company",
        ),
    ),
    Planted(
        "utc",
        "Times are timezone-aware: datetime.now(UTC), never utcnow.",
        (
            ("stamp the {s} rows", "row.created = datetime.utcnow()", "row.created = datetime.now(UTC)"),
            ("log how long {s} takes", "start = datetime.now()", "start = datetime.now(UTC)"),
            ("expire {s} tokens after a day", "if datetime.utcnow() - t > timedelta(days=1): expire()", "if datetime.now(UTC) - t > timedelta(days=1): expire()"),
        ),
        (
            "naive datetimes are banned, use datetime.now(UTC)",
            "utcnow is deprecated and naive; timezone-aware please",
            "that has no tzinfo",
            "aware datetimes only: now(UTC)",
            "please make it timezone aware, we had this bug twice",
        ),
    ),
    Planted(
        "logger",
        "Use the module's logger, never print.",
        (
            ("add some debug output to {s}", "print(f'{s}: got {payload}')", "logger.debug('{s}: got %s', payload)"),
            ("tell us when {s} retries", "print('retrying', attempt)", "logger.warning('retrying, attempt %d', attempt)"),
            ("trace the slow {s} query", "I put a print(elapsed) after the query.", "I put logger.info('elapsed %.2f', elapsed) after the query."),
        ),
        (
            "no prints, we have a logger",
            "print goes nowhere in production. logger!",
            "use logging instead of print",
            "swap that print for the logger please",
            "log it properly",
        ),
    ),
)  # fmt: skip

ONCE = (
    ("which port does {s} listen on? put it in the readme", "8081", "no, 8081 is the admin port, I meant the public one", "8080"),
    ("rename the helper in {s}", "Renamed it to do_it.", "not do_it, call it resolve_alias", "Renamed to resolve_alias."),
    ("draw the {s} flow", "Here is a flowchart.", "I wanted a sequence diagram", "Here is a sequence diagram."),
    ("sort the {s} list", "Sorted ascending.", "other way round", "Sorted descending."),
    ("translate the {s} banner", "Translated to Spanish.", "it should be Portuguese", "Translated to Portuguese."),
    ("scale {s} down", "Set replicas to 0.", "wrong, one replica must stay", "Set replicas to 1."),
    ("delete the old {s} branch", "Deleted feature/a.", "undo that! I meant feature/b", "Restored feature/a, deleted feature/b."),
    ("write the {s} query", "SELECT * FROM users", "only the active ones", "SELECT * FROM users WHERE active"),
    ("make the {s} button green", "It is #0f0 now.", "that green hurts, take the brand one", "It is #2e7d32 now."),
    ("shorten the {s} title", "Cut to three words.", "don't drop the product name", "Put the product name back."),
    ("pick a name for the {s} topic", "events.v1", "no dots in topic names on this cluster", "events-v1"),
    ("move {s} to the new host", "Moved to host-a.", "host-b, not host-a", "Moved to host-b."),
)  # fmt: skip

NOISE = (
    ("explain how {s} reads its config", "It reads config.toml, then the environment.", ("thanks", "ah ok. and where is the default?", "why not the other way round?")),
    ("add a health check to {s}", "Added /healthz.", ("great, now also add /readyz", "perfect", "can you show me the diff?")),
    ("why is {s} slow?", "It opens a connection for each row.", ("fix it then", "no worries, we will live with it", "hm, not sure I believe that. measure it")),
    ("look at the failing {s} build", "A dependency moved; I pinned it.", ("ok push it", "nice", "no, leave the lint warnings for now, go on")),
    ("split {s} into two modules", "Done: reader and writer.", ("now do the same for the tests", "and update the docs", "looks good")),
    ("review the {s} change", "Two remarks: naming, and a missing test.", ("address both", "I don't agree with the first, skip it", "actually never mind, it's merged")),
    ("what does {s} return on error?", "None.", ("should it raise instead?", "ok", "don't change it, I was only asking")),
    ("set the {s} timeout to 30", "Set to 30 seconds.", ("make it 45, the vendor changed the SLA today", "thx", "next: the retry count")),
    ("prepare the demo of {s}", "Script is in demo.md.", ("wonderful", "add a slide about costs", "stop here, I will take over")),
    ("check the {s} metrics", "p95 is 210 ms.", ("and p99?", "is this the wrong dashboard or is it just quiet?", "instead of p95 give me the histogram")),
)  # fmt: skip
ACKS = ("", "", "Done. ", "Right. ", "Sorry about that. ", "Updated. ", "You're right. ", "Ok. ")


@dataclass
class PlantedSession:
    id: str
    turns: list[tuple[str, str]] = field(default_factory=list)
    """(user or assistant, text)."""
    rules: dict[int, str] = field(default_factory=dict)
    """Number of a correcting turn → the planted rule; `once` for a correction that comes up once."""


def planted_history(sessions: int = 200, seed: int = 7) -> list[PlantedSession]:
    rng = random.Random(seed)
    history = [PlantedSession(id=f"{rng.getrandbits(64):016x}-{number:03d}") for number in range(sessions)]
    plan: dict[int, list[Planted]] = defaultdict(list)
    for rule in RULES:
        for number in rng.sample(range(sessions), rng.randint(5, 8)):
            plan[number].append(rule)
    once = dict(zip(rng.sample(range(sessions), len(ONCE)), ONCE, strict=True))
    for number, session in enumerate(history):
        episodes = [lambda session=session: _noise(session, rng) for _ in range(rng.randint(1, 4))]
        episodes += [lambda session=session, rule=rule: _planted(session, rule, rng) for rule in plan[number]]
        if number in once:
            episodes.append(lambda session=session, scene=once[number]: _once(session, scene, rng))
        rng.shuffle(episodes)
        for episode in episodes:
            episode()
    return history


def _named(text: str, service: str) -> str:
    return text.replace("{s}", service).replace("{S}", service.capitalize())


def _planted(session: PlantedSession, rule: Planted, rng: random.Random) -> None:
    service = rng.choice(SERVICES)
    request, wrong, right = (_named(text, service) for text in rng.choice(rule.scenes))
    session.turns += [("user", request), ("assistant", wrong)]
    session.rules[len(session.turns)] = rule.name
    session.turns += [("user", rng.choice(rule.wordings)), ("assistant", rng.choice(ACKS) + right)]


def _once(session: PlantedSession, scene: tuple[str, str, str, str], rng: random.Random) -> None:
    request, wrong, correction, right = (_named(text, rng.choice(SERVICES)) for text in scene)
    session.turns += [("user", request), ("assistant", wrong)]
    session.rules[len(session.turns)] = "once"
    session.turns += [("user", correction), ("assistant", right)]


def _noise(session: PlantedSession, rng: random.Random) -> None:
    service = rng.choice(SERVICES)
    request, answer, follow_ups = rng.choice(NOISE)
    session.turns += [("user", _named(request, service)), ("assistant", _named(answer, service))]
    if rng.random() < 0.6:
        session.turns += [("user", _named(rng.choice(follow_ups), service)), ("assistant", rng.choice(("Done.", "Sure.", "It is in.")))]  # fmt: skip
