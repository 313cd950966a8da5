"""The errors of the hub."""


class HFValidationError(ValueError):
    """A name that no repository can have."""


class EntryNotFoundError(Exception):
    """A file that a repository does not have."""


class LocalEntryNotFoundError(FileNotFoundError, EntryNotFoundError):
    """A file that is not in the cache, and no network to look for it."""
