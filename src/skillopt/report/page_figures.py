"""The parts of the report that show figures: verdict, curves, heat map, costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skillopt.report.costs import CostRow, cost_rows, role_row, stage_seconds, total_usd
from skillopt.report.funnel import dropped, funnel
from skillopt.report.markup import bullets, fold, table, tag, text
from skillopt.report.plan_lines import planned_rows
from skillopt.report.plots import heat_plot, progress_plot, rate_plot
from skillopt.report.run_facts import Facts
from skillopt.report.text import counted, dollars, duration, ranged, score
from skillopt.run.summary import ROLES
from skillopt.version import __version__

HEAT_LEAD = "Each row is an item, each column a version of the skill. Hardest items on top."
_FUNNEL = {
    "proposed": "proposed",
    "usable": "usable",
    "distinct": "after merging",
    "selected": "selected",
    "applied": "applied",
    "accepted": "accepted",
}


def header(facts: Facts) -> str:
    summary, config = facts.summary, facts.config
    status = summary["status"] + (f" ({summary['stop_reason']})" if summary["stop_reason"] else "")
    chips = [
        tag("span", text(status), cls=f"chip {summary['status']}" if summary["status"] in _STATUSES else "chip"),
        *(
            tag("span", text(said), cls="chip")
            for said in (
                f"seed {summary['seed']}",
                f"target {config['models.target_model']}",
                f"optimizer {config['models.optimizer_model'] if _has_optimizer(summary) else 'none'}",
                counted(config["train.num_epochs"], "epoch"),
            )
        ),
    ]
    return tag("header", tag("h1", text(summary["benchmark"])), tag("p", *chips))


def _has_optimizer(summary: Mapping[str, Any]) -> bool:
    """Was one asked, or could one have been?"""
    planned = summary.get("plan", {}).get("calls", {}).get("optimizer", {}).get("high")
    return bool(summary["calls"]["optimizer"] or planned is None or planned)


_STATUSES = {"finished", "stopped", "running"}


def verdict_part(facts: Facts) -> str:
    """The figures that every report must have, first."""
    summary = facts.summary
    initial, best = summary["initial"], summary["best"]
    rate, edits, stuck = summary["edit_acceptance_rate"], summary["edits"], summary["persistent_failures"]
    steps = summary["steps"]
    cards = [
        _card("Validation", _arrow(score(initial["val"]), score(best["val"])), _span(best, "val"), main=True),
        _card("Test", _arrow(score(initial["test"]), score(best["test"])), _span(best, "test"), main=True),
        _card("Skill length", _arrow(str(initial["tokens"]), str(best["tokens"])), "tokens"),
        _card(
            "Edit acceptance",
            "–" if rate is None else f"{rate:.0%}",
            f"{edits['accepted']} of {edits['proposed']} proposed edits",
        ),
        _card("Steps", str(steps["run"]), f"{steps['accepted']} accepted, best at step {best['step']}"),
        _card("Persistent failures", str(len(stuck)), "items that no skill tried has solved"),
        _card("Cost", dollars(total_usd(summary)), f"{sum(summary['calls'][role] for role in ROLES):,} calls"),
        _card("Time", duration(summary["seconds"]), f"gate saved {summary['gate']['calls_saved']:,} calls"),
    ]
    told = tag("p", text(facts.verdict), cls="verdict")
    return tag("section", told, tag("div", *cards, cls="cards"), _measured(summary), id="verdict")


def _card(name: str, figure: str, below: str, *, main: bool = False) -> str:
    inner = tag("span", text(name)) + tag("b", figure) + tag("span", text(below))
    return tag("div", inner, cls="card main" if main else "card")


def _arrow(before: str, after: str) -> str:
    return f"<i>{text(before)} →</i> {text(after)}"


def _span(side: Mapping[str, Any], split: str) -> str:
    bounds = side.get(f"{split}_interval")
    return f"95 % interval {bounds[0]:.2f}–{bounds[1]:.2f}" if bounds else "not measured yet"


def _measured(summary: Mapping[str, Any]) -> str:
    """Every skill that was measured, with intervals drawn to scale."""
    rows = []
    for name, side in _sides(summary):
        cells = [text(name)]
        for split in ("val", "test"):
            value, bounds = side.get(split), side.get(f"{split}_interval")
            cells += [text(ranged(value, bounds)), _bar(value, bounds)]
        rows.append(cells)
    head = ("", "validation", "0 to 1", "test", "0 to 1")
    return tag("h3", "Measured, with 95 % intervals") + tag("div", table(head, rows), cls="measured")


def _sides(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, side in summary["baselines"].items():
        always = f" (always “{side['answer']}”)" if "answer" in side else ""
        yield f"{name.replace('_', ' ')}{always}", side
    yield f"initial skill ({summary['initial']['kind']}, zero-shot)", summary["initial"]
    best = summary["best"]
    yield "best skill", best
    if best["val_remeasured"] is not None and best["version"]:
        again = {"val": best["val_remeasured"], "val_interval": best["val_remeasured_interval"]}
        yield f"best skill, measured again ({0 - best['winners_curse']:+.2f}: what luck had added)", again


def _bar(value: float | None, bounds: Sequence[float] | None) -> str:
    if value is None:
        return ""
    low, high = bounds or (value, value)
    inside = f'<i style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
    return tag("span", inside, f'<b style="left:{100 * value:.1f}%"></b>', cls="range")


def progress(facts: Facts) -> str:
    history, summary = facts.history, facts.summary
    drawn = [
        tag("h3", "Validation score and skill length"),
        tag("div", progress_plot(history, summary, facts.tokens), cls="wide"),
        tag("div", progress_plot(history, summary, facts.tokens, 380), cls="narrow"),
    ]
    if history:
        drawn += [
            tag("h3", "Learning rate (edits a step)"),
            tag("div", rate_plot(history, summary), cls="wide"),
            tag("div", rate_plot(history, summary, 380), cls="narrow"),
            tag("h3", "What became of the edits"),
            _funnel(facts),
        ]
    return "".join(drawn)


def _funnel(facts: Facts) -> str:
    counts = funnel(facts.history)
    most = max(counts["proposed"], 1)
    bars = "".join(
        f'<span>{text(name)}</span><span class="bar"><i style="width:{100 * counts[stage] / most:.1f}%"></i></span>'
        f'<span class="n">{counts[stage]:,}</span>'
        for stage, name in _FUNNEL.items()
    )
    reasons = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in dropped(facts.history).items())
    told = tag("p", text(f"Not usable: {reasons}."), cls="soft") if reasons else ""
    return tag("div", bars, cls="bars") + told


def heat(facts: Facts) -> str:
    """Both splits; the test split is not measured for each version."""
    key = (("h4", "solved"), ("h2", "in part"), ("h0", "failed"))
    told = "".join(
        tag("span", f'<i class="plot" style="background:var(--{name})"></i>{text(said)}') for name, said in key
    )
    heat_map = facts.heat.called(facts.names)
    val, train = heat_map.only("val"), heat_map.only("train")
    parts = [
        tag("div", told, tag("span", "blank: not measured"), cls="key"),
        tag("div", _sized(heat_plot(val, "Validation items under each version")), cls="heat"),
    ]
    if train.items:
        title = f"Training items ({len(train.items)}; each is measured only when its batch comes up)"
        drawn = _sized(heat_plot(train, "Training items under each version"))
        parts.append(fold(text(title), tag("div", drawn, cls="heat")))
    return "".join(parts)


def _sized(drawing: str) -> str:
    """At its natural size: many versions scroll, few do not become huge."""
    width = drawing.partition('viewBox="0 0 ')[2].partition(" ")[0]
    return drawing.replace('class="plot"', f'class="plot" style="width:{width}px"', 1)


def _estimated(summary: Mapping[str, Any]) -> list[str]:
    return list(summary.get("tokens_estimated", ()))


def costs(facts: Facts) -> str:
    summary = facts.summary
    rows = []
    for role in ROLES:
        own = [row for row in cost_rows(summary) if row.role == role]
        rows += [_cost_cells(row) for row in own]
        rows.append([f"<b>{cell}</b>" for cell in _cost_cells(role_row(summary, role))])
    head = ("role", "stage", "calls", "prompt tokens", "cached", "reply tokens", "cost")
    seconds = stage_seconds(summary, facts.history)
    timed = [[text(stage.replace("_", " ")), duration(taken)] for stage, taken in seconds.items()]
    timed.append(["<b>whole run</b>", f"<b>{duration(summary['seconds'])}</b>"])
    planned = [[text(name), text(low_high), text(real)] for name, low_high, real in planned_rows(summary["plan"])]
    return "".join(
        [
            tag("h3", "Tokens and money"),
            table(head, rows, numbers=(2, 3, 4, 5, 6)),
            *(tag("p", text(f"Tokens of the {role} are estimates."), cls="soft") for role in _estimated(summary)),
            tag("h3", "Seconds"),
            tag("p", "Wall-clock time; calls run in parallel.", cls="soft"),
            table(("stage", "time"), timed, numbers=(1,)),
            tag("h3", "Plan against actual"),
            tag("p", "The plan is an estimate from before the first call.", cls="soft"),
            table(("", "planned", "actual"), planned, numbers=(1, 2)),
        ]
    )


def _cost_cells(row: CostRow) -> list[str]:
    counts = (f"{n:,}" if n is not None else "–" for n in (row.calls, row.prompt, row.cached, row.completion))
    return [text(row.role), text(row.stage.replace("_", " ")), *counts, text(dollars(row.usd))]


def about(facts: Facts) -> str:
    summary, config = facts.summary, facts.config
    notes = [
        f"{key.removeprefix('notes.')}: {said}" for key, said in config.items() if key.startswith("notes.") and said
    ]
    aside = [f"{item}: {why}" for item, why in summary["set_aside"].items()]
    reads = [f"{read['when'][:19]} by {read['who']}, {read['items']} items" for read in facts.test_reads]
    keys = [[text(key), text(value)] for key, value in config.items()]
    return "".join(
        [
            bullets(
                [
                    f"Trained by {facts.trained_by}; report written by SkillOpt {__version__}",
                    f"Rollouts until the best version: {summary['rollouts_to_best']:,}",
                ]
            ),
            tag("h3", "Notes") + bullets(notes) if notes else "",
            tag("h3", "Items set aside by the endpoint") + bullets(aside) if aside else "",
            tag("h3", "Reads of the sealed test split") + bullets(reads) if reads else "",
            fold("The whole config", table(("key", "value"), keys)),
        ]
    )
