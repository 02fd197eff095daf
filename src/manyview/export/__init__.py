"""A trained encoder for use elsewhere."""

from manyview.export.export import FORMATS, export

__all__ = ["FORMATS", "export"]
