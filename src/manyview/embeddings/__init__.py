"""Embeddings of whole data sets, in files."""

from manyview.embeddings.about import About
from manyview.embeddings.embed import embed
from manyview.embeddings.file_format import Embeddings, read

__all__ = ["About", "Embeddings", "embed", "read"]
