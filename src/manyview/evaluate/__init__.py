"""HOW GOOD: what an encoder's embeddings are worth, by labels that training never saw."""

from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.open_model import open_model
from manyview.evaluate.prepare import prepare
from manyview.evaluate.protocols import PROTOCOLS, evaluate
from manyview.evaluate.results import Result
from manyview.evaluate.task import Task
from manyview.features.embedding_pass import embed, features
from manyview.features.feature_cache import FeatureCache
from manyview.features.knn import knn, knn_predict, knn_votes

__all__ = [
    "PROTOCOLS",
    "FeatureCache",
    "ModelSource",
    "Result",
    "Task",
    "embed",
    "evaluate",
    "features",
    "knn",
    "knn_predict",
    "knn_votes",
    "open_model",
    "prepare",
]
