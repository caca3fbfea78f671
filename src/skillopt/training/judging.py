"""Reads the calibration of a run's judge, which `skillopt judge calibrate` wrote."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from skillopt.config import Config
from skillopt.errors import UserError
from skillopt.record.calibration import JudgeCalibration, JudgeStanding
from skillopt.record.files import read_bytes
from skillopt.tasks.judge import judge_options, setup_hash


def judge_model(config: Config) -> str:
    """The name of the model that judges; if the config names no judge, this is the optimizer."""
    return config.models.judge_model or config.models.optimizer_model


def read_calibration(path: str) -> JudgeCalibration:
    try:
        return JudgeCalibration.model_validate_json(read_bytes(Path(path)))
    except OSError as error:
        raise UserError(f"models.judge_calibration: {path}: {error.strerror or error}") from None
    except ValidationError:
        raise UserError(
            f"models.judge_calibration: {path}: is not a calibration; write one with `skillopt judge calibrate`"
        ) from None


def calibration_of(config: Config) -> JudgeCalibration | None:
    """The calibration that the config names; None if the config names none, or if the calibration is of a different
    judge."""
    options, path = judge_options(config.env), config.models.judge_calibration
    if options is None or not path:
        return None
    found = read_calibration(path)
    return found if found.setup == setup_hash(judge_model(config), options) else None


def flips(config: Config) -> bool:
    """True if the judge's grades of the same answer differed in the calibration. Such a judge is noisy, even if its
    model is declared deterministic."""
    known = calibration_of(config)
    return known is not None and (known.flip_rate > 0 or known.deviation > 0)


def standing_of(config: Config) -> JudgeStanding:
    known = calibration_of(config)
    path = config.models.judge_calibration
    return JudgeStanding(
        model=judge_model(config),
        is_optimizer=not config.models.judge_model,
        calibration="done" if known else "of another judge" if path else "none",
        kappa=known.kappa if known else None,
        flip_rate=known.flip_rate if known else None,
        biases=known.biases if known else (),
    )
