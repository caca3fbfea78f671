"""Property tests draw the same examples in every run; `--hypothesis-profile=explore` looks for new ones."""

from hypothesis import settings

settings.register_profile("fixed", deadline=None, max_examples=60, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000, database=None)
settings.load_profile("fixed")
