"""Limits the total cost of the runs that an agent starts. The limits come from the user's config files; if these set
none, defaults are used."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skillopt.config import BudgetConfig, Config
from skillopt.errors import UserError
from skillopt.models import endpoint_of
from skillopt.provider_table import provider_of
from skillopt.training.parts import roles_of
from skillopt_webui import forms
from skillopt_webui.allowed import user_configs
from skillopt_webui.settings import PageSettings

_MOST = {"max_usd": 50.0, "max_calls": 20_000, "max_tokens": 50_000_000}
"""The largest limits that an agent may choose if no config file of the user sets a limit for the same endpoint."""


@dataclass(eq=False)
class Start:
    """A run that this server started, and the maximum that the run may cost."""

    run: str
    """The settings as text, except budget and hardware. Starts with the same settings continue the same run."""
    limits: dict[str, float]
    launches: int = 0
    """How often the run was launched. Launches that did not begin are not counted."""


class Allowances:
    """The limits of each config file. A limit applies to the total cost of all runs that this server starts under
    it."""

    def __init__(self) -> None:
        self._starts: dict[Path | None, list[Start]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, config: Config, file: Path, settings: PageSettings, *, fresh: bool) -> Start | None:
        """Reserve the maximum cost of starting `config`, which was read from `file`. Return None if the run is free.

        Raise UserError if the cost is more than the user allows. A start may only lower the limits of `file`. The cost
        must also fit the limits in a config of the user. It is the first of these configs that exists and has limits:

        1. `file`, if it is a config of the user and names an endpoint and key of this run
        2. any other config of the user that names an endpoint and key of this run
        3. `file`, if it is a config of the user

        If none of these exists and has limits, the limits in `_MOST` apply.
        """
        if not (models := _costly(config)):
            return None
        budget, file = config.budget, file.resolve()
        if not _limited(budget):
            listed = ", ".join(f"budget.{limit}" for limit in _MOST)
            raise UserError(f"{', '.join(models.values())} may cost money, but no budget is set; set one of {listed}")
        _check_lowered(budget, forms.read(file, settings).budget)
        configs = user_configs(settings)
        priced = [configs[file]] if file in configs else [Config(), *configs.values()]
        if budget.prices not in [each.budget.prices for each in priced]:
            raise UserError(
                "budget.prices: only a config file may set prices, because budget.max_usd is calculated with them"
            )
        limited = {path: each for path, each in configs.items() if _limited(each.budget)}
        sharing = [path for path, each in limited.items() if models.keys() & _costly(each).keys()]
        sources: Sequence[Path | None] = (
            [file] if file in sharing else sharing or ([file] if file in limited else [None])
        )
        refused = []
        for source in sources:
            written = configs[source].budget if source else BudgetConfig()
            try:
                _check_lowered(budget, written)
                with self._lock:
                    return self._take(config, source, written, fresh=fresh)
            except UserError as error:
                refused.append(error)
        raise refused[0]

    def give_back(self, start: Start | None) -> None:
        """Undo the reservation of a launch that did not begin."""
        with self._lock:
            if start:
                start.launches -= 1
            for starts in self._starts.values():
                starts[:] = [each for each in starts if each.launches]

    def _take(self, config: Config, source: Path | None, written: BudgetConfig, *, fresh: bool) -> Start:
        flat = {key: value for key, value in config.flat().items() if not key.startswith(("budget.", "hardware."))}
        run, starts = json.dumps(flat, sort_keys=True), self._starts[source]
        continued = None if fresh else next((start for start in reversed(starts) if start.run == run), None)
        start, limits = continued or Start(run, {}), {}
        for limit, most in _MOST.items():
            allowed, wanted = getattr(written, limit) or most, getattr(config.budget, limit)
            if wanted is None:
                continue
            reserved = sum(other.limits.get(limit, 0) for other in starts if other is not start)
            if wanted + reserved > allowed:
                raise UserError(
                    f"budget.{limit}: {wanted:g} is more than the {allowed - reserved:g} that are left (all runs of "
                    f"this server share {allowed:g}); lower the value, continue an earlier run, or ask the user"
                )
            limits[limit] = max(wanted, start.limits.get(limit, 0))
        start.limits |= limits
        start.launches += 1
        if continued is None:
            starts.append(start)
        return start


def _costly(config: Config) -> dict[tuple[str, str], str]:
    """The models that may cost money, by endpoint and key. Models on this machine and handoffs are free."""
    names = {role: config.role(role).model for role in roles_of(config)}
    return {endpoint_of(role, config): name for role, name in names.items() if not provider_of(name).is_free}


def _limited(budget: BudgetConfig) -> bool:
    return any(getattr(budget, limit) is not None for limit in _MOST)


def _check_lowered(budget: BudgetConfig, written: BudgetConfig) -> None:
    for limit in _MOST:
        value, theirs = getattr(budget, limit), getattr(written, limit)
        if theirs is not None and (value is None or value > theirs):
            raise UserError(f"budget.{limit}: the config file allows {theirs:g}; a change may only lower this limit")
