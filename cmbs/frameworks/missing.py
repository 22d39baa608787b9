"""What is raised where a framework is not installed."""

from __future__ import annotations


class MissingFramework(ImportError):
    """The module of a framework was imported, and the framework is not there. Says what to install."""

    def __init__(self, extra: str, cause: ImportError) -> None:
        super().__init__(f"this module needs `pip install 'cmbs[{extra}]'`: no `{cause.name}` here", name=cause.name)
