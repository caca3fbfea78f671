"""The command `skillopt prune`: writes a shorter skill that is shown to be no worse."""

from __future__ import annotations

from typing import Annotated

import typer

from skillopt.cli.app import Overrides, RunArgument, app, measured, show


@app.command()
def prune(
    run: RunArgument,
    overrides: Overrides = None,
    margin: Annotated[float, typer.Option("--margin", min=0, max=1, help="How much lower the score may be.")] = 0.05,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=1, help="Samples of each item in the ablation; 1 or, if noisy, 3.")
    ] = None,
    trials: Annotated[int, typer.Option("--trials", min=1, max=12, help="At most this many shorter skills.")] = 5,
    max_calls: Annotated[int | None, typer.Option("--max-calls", min=1, help="Stop after this many calls.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
) -> None:
    """Write the best skill without the rules that earn nothing, if it is no worse without them. best_skill.md stays.

    Exit codes: 0 pruned, or nothing to prune; 1 the last shorter skill is worse; 4 cannot tell; 2 and 3 as for every
    command.
    """
    from skillopt.cli.measure import config_of
    from skillopt.measure.prune import plan
    from skillopt.measure.prune import prune as run_pruning
    from skillopt.preflight.plan import is_deterministic
    from skillopt.record.directory import RunDirectory
    from skillopt.view.measured_tables import pruning_lines

    config, directory = config_of(run, overrides, max_calls, "prune"), RunDirectory(run)
    if dry_run:
        noisy = not is_deterministic(config, "target")
        most = plan(directory, config, noisy_target=noisy, repeats=repeats, trials=trials)
        print(
            f"Ablation: {most.rules} rules on {most.items} validation items, at most {most.ablation:,} rollouts.\n"
            f"Then at most {trials} shorter skills against the best one, about {most.trials:,} rollouts at most.\n"
            "Replies in the journal cost nothing. No call was made."
        )
        return
    result = measured(
        config,
        lambda heard: run_pruning(directory, config, margin=margin, repeats=repeats, trials=trials, listeners=[heard]),
    )
    show(result.verdict, *pruning_lines(result), f"Written: {result.path}")
    raise typer.Exit(result.exit_code)
