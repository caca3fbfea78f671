"""Makes household games in ALFWorld's format, from the domain, grammar and goals of the package `alfworld`.

A game is a room with receptacles, objects in the receptacles, and a goal of one of the six task types. At the start,
the goal is not reached. The same seed makes the same game. Only the worker process imports this module, because it
needs the package `alfworld`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from alfworld.gen import constants
from alfworld.gen import goal_library as goals
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

from skillopt.tasks.base import Json

HOLDS: Mapping[str, Collection[str]] = constants.VAL_RECEPTACLE_OBJECTS
ABILITIES = {"Heatable": "heatable", "Coolable": "coolable", "Cleanable": "cleanable", "Sliceable": "sliceable"}
NEEDED = {
    "pick_heat_then_place_in_recep": "Heatable",
    "pick_cool_then_place_in_recep": "Coolable",
    "pick_clean_then_place_in_recep": "Cleanable",
}
OPENABLE = {"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"}
TOOLS = ("Fridge", "Microwave", "SinkBasin")
"""Receptacles in which objects are cooled, heated or cleaned. No goal asks to put an object into one of them."""
KITCHEN = (
    {"CounterTop": 3, "Cabinet": 5, "Drawer": 3, "Fridge": 1, "Microwave": 1, "SinkBasin": 1, "StoveBurner": 2,
     "GarbageCan": 1, "DiningTable": 1, "CoffeeMachine": 1},
    "Apple Bread Bowl ButterKnife Cup DishSponge Egg Fork Knife Lettuce Mug Pan PepperShaker Plate Pot Potato "
    "SaltShaker SoapBottle Spoon Tomato",
)  # fmt: skip
BEDROOM = (
    {"Bed": 1, "Desk": 1, "Drawer": 4, "Dresser": 1, "GarbageCan": 1, "Shelf": 3, "SideTable": 2},
    "AlarmClock Book Bowl CD CellPhone CreditCard KeyChain Laptop Mug Pen Pencil Pillow",
)
LAMP = "DeskLamp"


@dataclass(frozen=True)
class Thing:
    """An object or receptacle: its name in the problem, and its kind."""

    name: str
    kind: str


@dataclass(frozen=True)
class Made:
    name: str
    """The name of the game's folder, in the official form: task, object, receptacle, scene."""
    goal: str
    game: Json
    """The content of game.tw-pddl."""
    trajectory: Json
    """The content of traj_data.json."""


def make_game(task: str, seed: int) -> Made:
    draw = random.Random(f"alfworld/{task}/{seed}")  # noqa: S311
    lit = task == "look_at_obj_in_light"
    kinds, names = BEDROOM if lit else KITCHEN
    receptacles = [_receptacle(kind, number, draw) for kind, count in kinds.items() for number in range(count)]
    target, wanted = _goal(task, kinds, names.split(), draw)
    objects = [_object(kind, n, draw) for kind in names.split() for n in range(draw.choice((0, 1, 1, 2)))]
    need = 2 if task == "pick_two_obj_and_place" else 1
    have = sum(thing.kind == target for thing in objects)
    objects += [_object(target, 5 + n, draw) for n in range(need - have)]
    placed = [(thing, _place(thing, receptacles, {target: wanted}, draw)) for thing in objects]
    if lit:
        tables = [thing for thing in receptacles if thing.kind in {"Desk", "SideTable"}]
        placed.append((_object(LAMP, 0, draw), draw.choice(tables)))
    words = {"obj": target, "recep": wanted, "toggle": LAMP if lit else "", "mrecep": ""}
    wish = draw.choice(goals.gdict[task]["templates"]).format(**{key: word.lower() for key, word in words.items()})
    problem = _problem(f"{task}_{seed}", receptacles, placed, draw) + goals.gdict[task]["pddl"].format(**words)
    game = {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        "grammar": Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8").replace("UNKNOWN GOAL", wish),
        "pddl_problem": problem.replace("#", "-"),
        "solvable": True,
        "walkthrough": None,
    }
    parameters: Json = {"object_target": target, "parent_target": wanted, "toggle_target": words["toggle"],
                  "mrecep_target": "", "object_sliced": False}  # fmt: skip
    trajectory: Json = {
        "task_id": f"trial_G{seed:08d}",
        "task_type": task,
        "pddl_params": parameters,
        "turk_annotations": {"anns": [{"task_desc": wish}]},
    }
    return Made(f"{task}-{target}-None-{wanted or LAMP}-{900 + seed % 100}", wish, game, trajectory)


def _receptacle(kind: str, number: int, draw: random.Random) -> Thing:
    """Return a receptacle. ALFWorld reads the kind from the first part of the name; for a basin, from the last part."""
    stem, tail = ("Sink", "_bar_SinkBasin") if kind == "SinkBasin" else (kind, "")
    return Thing(f"{stem}_bar__minus_{number:02d}_dot_{draw.randint(10, 99)}{tail}", kind)


def _object(kind: str, number: int, draw: random.Random) -> Thing:
    return Thing(f"{kind}_bar__plus_{number:02d}_dot_{draw.randint(10, 99)}", kind)


def _goal(task: str, kinds: dict[str, int], names: list[str], draw: random.Random) -> tuple[str, str]:
    """Choose the goal's object and receptacle. If the goal is only to look at the object, there is no receptacle: its
    text is empty."""
    able = constants.VAL_ACTION_OBJECTS.get(NEEDED.get(task, ""), names)
    where = {name: [kind for kind in kinds if name in HOLDS.get(kind, ()) and kind not in TOOLS] for name in names}
    target = draw.choice([name for name in names if name in able and where[name]])
    return target, "" if task == "look_at_obj_in_light" else draw.choice(where[target])


def _place(thing: Thing, receptacles: list[Thing], wanted: dict[str, str], draw: random.Random) -> Thing:
    """Choose a receptacle that may contain the object. If the goal asks to bring the object to a kind of receptacle,
    another kind is preferred."""
    free = [r for r in receptacles if thing.kind in HOLDS.get(r.kind, ()) and r.kind != wanted.get(thing.kind)]
    return draw.choice(free or [r for r in receptacles if r.kind in {"CounterTop", "Desk", "Dresser"}])


def _problem(name: str, receptacles: list[Thing], placed: list[tuple[Thing, Thing]], draw: random.Random) -> str:
    """Return the PDDL problem up to its goal."""
    places = [f"loc_bar_{number}" for number in range(len(receptacles) + 1)]
    at = {thing.name: place for thing, place in zip(receptacles, places, strict=False)}
    rooms = sorted({thing.kind for thing in receptacles} | set(TOOLS))
    kinds = sorted({thing.kind for thing, _ in placed} | {"Knife", "ButterKnife"})
    lines = [f"(define (problem plan_{name})", "(:domain alfred)", "(:objects", "agent1 - agent"]
    lines += [f"{place} - location" for place in places]
    lines += [f"{thing.name} - receptacle" for thing in receptacles]
    lines += [f"{thing.name} - object" for thing, _ in placed]
    lines += [f"{kind}Type - rtype" for kind in rooms] + [f"{kind}Type - otype" for kind in kinds]
    lines += [")", "(:init", f"(atLocation agent1 {places[-1]})"]
    for thing in receptacles:
        lines += [f"(receptacleAtLocation {thing.name} {at[thing.name]})"]
        lines += [f"(receptacleType {thing.name} {thing.kind}Type)"]
        lines += [f"(openable {thing.name})"] if thing.kind in OPENABLE else []
    lines += [f"(canContain {room}Type {kind}Type)" for room in rooms for kind in kinds if kind in HOLDS.get(room, ())]
    for thing, where in placed:
        lines += [f"(objectType {thing.name} {thing.kind}Type)", f"(inReceptacle {thing.name} {where.name})"]
        lines += [f"(objectAtLocation {thing.name} {at[where.name]})"]
        lines += [f"({'toggleable' if thing.kind == LAMP else 'pickupable'} {thing.name})"]
        able = [able for kind, able in ABILITIES.items() if thing.kind in constants.VAL_ACTION_OBJECTS.get(kind, ())]
        lines += [f"({each} {thing.name})" for each in able]
    return "\n".join([*lines, ")", ""])
