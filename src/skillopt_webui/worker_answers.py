"""Answers to questions about a config, which the worker's process writes and the server reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from skillopt.record.forecast import Check


class PreviewItem(BaseModel):
    id: str
    type: str
    question: str
    context: str
    answers: list[str]


class PreviewSplit(BaseModel):
    size: int
    types: dict[str, int]
    """The most frequent task types."""
    items: list[PreviewItem]
    """The first few."""


class Preview(BaseModel):
    """The data set: its sizes, its first items, and whether its splits overlap."""

    name: str
    overlap: str
    splits: dict[str, PreviewSplit]


class PlanAnswer(BaseModel):
    """The fields of `Plan`, and the calls of each role."""

    model_config = ConfigDict(extra="allow")

    steps: int
    calls: dict[str, tuple[int, int]]


class Checklist(BaseModel):
    checks: list[Check]


class Failed(BaseModel):
    error: str


ANSWERS: dict[str, type[BaseModel]] = {
    "preview": Preview,
    "plan": PlanAnswer,
    "doctor": Checklist,
    "connection": Checklist,
}
