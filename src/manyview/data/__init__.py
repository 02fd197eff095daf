"""WHERE SAMPLES COME FROM: folders, named sets, paired modalities, generated scenes; and the loader of batches."""

from manyview.core.sample import Batch
from manyview.data.dataset import Dataset, Unreadable, id_of
from manyview.data.factory import open_data
from manyview.data.folder import Folder
from manyview.data.loader import Loader, TooManyUnreadable
from manyview.data.named import NAMED, open_named
from manyview.data.paired import Paired
from manyview.data.scenes.dataset import Scenes
from manyview.data.selection import imbalanced, subset
from manyview.data.torch_dataset import TorchDataset

__all__ = [
    "NAMED",
    "Batch",
    "Dataset",
    "Folder",
    "Loader",
    "Paired",
    "Scenes",
    "TooManyUnreadable",
    "TorchDataset",
    "Unreadable",
    "id_of",
    "imbalanced",
    "open_data",
    "open_named",
    "subset",
]
