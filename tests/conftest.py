"""One hypothesis profile for all tests: the same examples in every run, and no deadline."""

from hypothesis import settings

settings.register_profile("dshift", deadline=None, derandomize=True, database=None)
settings.load_profile("dshift")
