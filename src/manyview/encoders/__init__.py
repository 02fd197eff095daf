"""Who looks: networks that turn images into vectors, their heads, and the towers of query and key branch."""

from manyview.encoders.encoder import Encoder, check_name, check_options, create
from manyview.encoders.grad_checkpoint import checkpoint_blocks
from manyview.encoders.heads import HEADS
from manyview.encoders.layers import dense_convolutions, split_batch_norm, sync_batch_norm
from manyview.encoders.lora import merged
from manyview.encoders.momentum import MOMENTUM, shuffled
from manyview.encoders.prototypes import PROTOTYPES
from manyview.encoders.tower import Tower
from manyview.encoders.towers import Slot, Towers
from manyview.encoders.trained_part import choose_trained_part
from manyview.encoders.weights import load, load_into, save

__all__ = [
    "HEADS",
    "MOMENTUM",
    "PROTOTYPES",
    "Encoder",
    "Slot",
    "Tower",
    "Towers",
    "check_name",
    "check_options",
    "checkpoint_blocks",
    "choose_trained_part",
    "create",
    "dense_convolutions",
    "load",
    "load_into",
    "merged",
    "save",
    "shuffled",
    "split_batch_norm",
    "sync_batch_norm",
]
