"""One peer's training on a folder of images for a time of one core: a process of its own, which writes its encoder.

    python benchmarks/equal_time_peers.py PEER --images DIR --encoder NAME --size 32 --seconds 90 --seed 0 --to FOLDER

DIR is searched for pictures at any depth; labels are not used. The clock is the processor's and starts with the first
step. It knows nothing of manyview's training loop; of manyview it takes the encoder `patchnet` and no more.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

LIGHTLY_BATCH, LIGHTLY_TRAIN_BATCH = 256, 128  # of lightly's examples; lightly-train's default
TIMED = (1, 3)  # steps of two runs of lightly-train, whose difference tells what a step takes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--size", type=int, required=True, help="of views; 0: the peer's own default")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    given.to.mkdir(parents=True, exist_ok=True)
    encoder, facts = PEERS[given.peer](given)
    torch.save(encoder.state_dict(), given.to / "encoder.pt")
    (given.to / "trained.json").write_text(json.dumps(facts))


def network(name: str) -> Any:
    """The encoder, without a classifier."""
    if name == "patchnet":
        from manyview.encoders import create

        return create(name, size=32)
    from torchvision.models import resnet18

    encoder = resnet18()
    encoder.fc = nn.Identity()
    return encoder


class Pictures(torch.utils.data.Dataset[Any]):
    """Pictures in memory, through a transform: no decoding on the peer's bill."""

    def __init__(self, folder: Path, transform: Callable[[Any], Any]) -> None:
        self.pictures = [Image.open(path).convert("RGB") for path in files(folder)]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.pictures[index])


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg"))


def lightly(loss: str, given: argparse.Namespace) -> tuple[nn.Module, dict[str, Any]]:
    """lightly's SimCLR and DCL examples (examples/pytorch of 1.6): SGD of rate 0.06 without momentum, batch 256.

    SimCLRTransform is at its defaults, but for its size, and for blur up to 32 px, which the SimCLR example leaves out.
    """
    from lightly import loss as losses
    from lightly.models.modules import SimCLRProjectionHead
    from lightly.transforms import SimCLRTransform

    encoder = network(given.encoder)
    model = nn.Sequential(encoder, SimCLRProjectionHead(getattr(encoder, "dim", 512), 512, 128))
    optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.06), getattr(losses, loss)()
    blur = {"gaussian_blur": 0.0} if given.size <= 32 else {}
    data = Pictures(given.images, SimCLRTransform(input_size=given.size, **blur))
    loader = torch.utils.data.DataLoader(data, min(LIGHTLY_BATCH, len(data)), shuffle=True, drop_last=True)
    began, steps = time.process_time(), 0
    while True:
        for first, second in loader:
            criterion(model(first), model(second)).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if (taken := time.process_time() - began) >= given.seconds:
                return encoder, {"seconds": taken, "steps": steps, "batch": loader.batch_size, "size": given.size}


def lightly_train(method: str, given: argparse.Namespace) -> tuple[nn.Module, dict[str, Any]]:
    """`lightly-train pretrain` with its defaults, ended after as many steps as fit into the time.

    What a step takes is timed once, by two short runs, and kept beside the folder of the result. Its schedule is that
    of a training which ends there.
    """
    path = given.to.parent / f"step-of-{given.to.name.rpartition('-seed')[0] or given.to.name}.json"
    if not path.exists():
        times = [_pretrain(method, given, steps)[1] for steps in TIMED]
        path.write_text(json.dumps((times[1] - times[0]) / (TIMED[1] - TIMED[0])))
    step = json.loads(path.read_text())
    steps = max(1, round(given.seconds / step))
    exported, _ = _pretrain(method, given, steps)
    encoder = network("torchvision/resnet18")
    state = torch.load(exported, weights_only=True)
    encoder.load_state_dict({key: value for key, value in state.items() if not key.startswith("fc.")})
    return encoder, {"seconds": steps * step, "steps": steps, "batch": _batch(given), "size": given.size or 224}


def _batch(given: argparse.Namespace) -> int:
    return min(LIGHTLY_TRAIN_BATCH, len(files(given.images)))


def _pretrain(method: str, given: argparse.Namespace, steps: int) -> tuple[Path, float]:
    """A run of lightly-train: the exported weights, and the processor's seconds that it took."""
    import lightly_train

    out, few = given.to / "run", _batch(given)
    length = {"epochs": math.ceil(steps / (len(files(given.images)) // few)), "trainer_args": {"max_steps": steps}}
    smaller: dict[str, Any] = {"transform_args": {"image_size": (given.size, given.size)}} if given.size else {}
    if few < LIGHTLY_TRAIN_BATCH:
        smaller["batch_size"] = few
    began = time.process_time()
    lightly_train.pretrain(
        out=out, data=given.images, model=given.encoder, method=method, seed=given.seed, num_workers=0, overwrite=True,
        **length, **smaller,
    )  # fmt: skip
    return out / "exported_models" / "exported_last.pt", time.process_time() - began


PEERS: dict[str, Callable[[argparse.Namespace], tuple[nn.Module, dict[str, Any]]]] = {
    "lightly-simclr": partial(lightly, "NTXentLoss"),
    "lightly-dcl": partial(lightly, "DCLLoss"),
    "lightly-train-simclr": partial(lightly_train, "simclr"),
    "lightly-train-dino": partial(lightly_train, "dino"),
}


if __name__ == "__main__":
    main()
