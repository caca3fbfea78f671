"""The errors that a user sees. Each message says what was wrong, where, and how to fix it."""


class SkillOptError(Exception):
    """Base of all errors that are ours to explain."""


class UserError(SkillOptError):
    """Bad input: a config, a data file, a command line. The command line exits with code 2."""


class Damaged(UserError):  # noqa: N818 - says it all
    """A file of a run is not as it was written. Nothing is trained on it."""


class Stopped(SkillOptError):  # noqa: N818 - not a fault
    """A run that ends early, with everything paid kept: a budget, Ctrl-C, an endpoint that is down."""
