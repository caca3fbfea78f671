"""Options of one part, such as an env or a scorer. The part's model checks them, and errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from skillopt.errors import UserError


class Options(BaseModel):
    """The options of a part; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def read(cls, given: Mapping[str, JsonValue], where: str) -> Self:
        """Return the checked options. `where` is the config key that contains them."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise UserError(f"{where}.{first_problem(error)}; the options are: {', '.join(cls.model_fields)}") from None


def first_problem(error: ValidationError) -> str:
    """The first validation error as `key.below: what is wrong`."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
