"""Where the corpus is known to fail, and why: a check listed here has to fail, and a mend removes it."""

__all__ = ["KNOWN"]

KNOWN: dict[tuple[str, str], str] = {}
