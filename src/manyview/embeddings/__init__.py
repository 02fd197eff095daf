"""Embeddings of whole data sets, in files."""

from manyview.embeddings.embed import embed
from manyview.embeddings.file_format import About, Embeddings, read

__all__ = ["About", "Embeddings", "embed", "read"]
