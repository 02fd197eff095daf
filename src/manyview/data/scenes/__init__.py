"""The generated data set: scenes of solids on a ground plane, with every modality and target known exactly."""

from manyview.data.scenes.dataset import Scenes

__all__ = ["Scenes"]
