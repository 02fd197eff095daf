"""Embeds whole data sets into files, and opens the models that do."""

from manyview.embeddings.about import About
from manyview.embeddings.embed import embed
from manyview.embeddings.file_format import Embeddings, read

__all__ = ["About", "Embeddings", "embed", "read"]
