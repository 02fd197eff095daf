"""HOW GOOD: what an encoder's embeddings are worth, judged with labels that training never saw."""

from manyview.evaluate.features import embed, features
from manyview.evaluate.knn import knn, knn_predict, knn_votes

__all__ = ["embed", "features", "knn", "knn_predict", "knn_votes"]
