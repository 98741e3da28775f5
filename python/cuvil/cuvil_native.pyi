"""The engine. Its names may change without notice, so they are not typed."""

from typing import Any

def __getattr__(name: str) -> Any: ...
