"""The base of all records. A record is typed and frozen. If it is read and written again, its JSON stays the same."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

SCHEMA_VERSION = 1
"""The version of the record format. It increases if a field is removed or changes its meaning."""

Interval = tuple[float, float]
"""A 95 % interval, low to high."""
Number = int | float
"""A number. An integer stays an integer when the record is written again."""
Role = Literal["target", "optimizer", "judge"]
ROLES: tuple[Role, Role] = ("target", "optimizer")
"""The roles that every run has. A run with a separate judge model also has the role `judge`."""
T = TypeVar("T")


class Record(BaseModel):
    """The base of all records. A field can be read as `record.field` or as `record["field"]`."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    optional: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not written if they are None."""

    @model_serializer(mode="wrap")
    def _without_absent(self, serialize: SerializerFunctionWrapHandler) -> Any:
        fields = serialize(self)
        absent = {name for name in self.optional if getattr(self, name) is None}
        return {name: value for name, value in fields.items() if name not in absent} if absent else fields

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        if name not in type(self).model_fields:
            return False
        return name not in self.optional or getattr(self, str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is `get`


class Document(Record):
    """A record that is a whole file, or a line of history.json."""

    schema_version: int = SCHEMA_VERSION


class ByRole(Record, Generic[T]):
    """A value for each role: target, optimizer and judge."""

    optional: ClassVar = frozenset({"judge"})

    target: T
    optimizer: T
    judge: T | None = None
    """The judge's value. None if no model judges, or if the optimizer judges. A price is also None if it is unknown."""

    @property
    def roles(self) -> tuple[Role, ...]:
        return ROLES if self.judge is None else (*ROLES, "judge")

    def of(self, role: Role) -> T:
        values = {"target": self.target, "optimizer": self.optimizer, "judge": self.judge}
        return cast("T", values[role])
