"""A trained encoder for use elsewhere."""

from manyview.export.export import FORMATS, Format, export

__all__ = ["FORMATS", "Format", "export"]
