"""The errors that dshift raises on purpose.

Each one also is the built-in error that a caller would expect, so that ``except ValueError`` works.
"""


class DshiftError(Exception):
    """Anything that dshift refuses, with a message that says what to do."""


class InvalidInput(DshiftError, ValueError):
    """A value that cannot be used: what was given, what is allowed, what to do."""


class InvalidType(DshiftError, TypeError):
    """An argument of a type that cannot be used."""


class MissingData(InvalidInput, FileNotFoundError):
    """A path or URL where nothing can be read."""


class StoreInUse(InvalidInput):
    """A store where another run is at work."""


class UnreadableData(InvalidInput, OSError):
    """Data that is there and cannot be read: torn, altered, or behind a failing disk."""


class StoreFailed(DshiftError, OSError):
    """A store that cannot be written or read; what was recorded before stays good."""


class BlockFailed(DshiftError, RuntimeError):
    """A block of seeds that could not be finished; what was recorded stays good."""


class ClusterLost(BlockFailed):
    """A cluster that went away, or keeps losing work; what was recorded stays good."""


class PlanRefused(DshiftError, MemoryError):
    """A job that would not fit, refused before anything runs."""
