"""The command `manyview demo`."""

from pathlib import Path
from typing import Annotated

from manyview.training.launch import configured, start

NEXT = """
What to do next:
  see what was learnt, in a browser            {out}/report.html
  examine a folder of your own images          manyview check FOLDER
  train an encoder on them                     manyview pretrain --data FOLDER
  choose another method: jcl, cacr, ...        manyview list methods
  score the encoder beside the untrained one   manyview evaluate {out}
  compare methods                              manyview compare --data scenes --methods simclr,dcl,cacr --epochs 2
  export the encoder                           manyview export {out} --to onnx
  load the encoder in Python                   encoder = manyview.load("{out}")
                                               encoder(encoder.preprocess("cat.jpg"))"""


def demo(*, out: Annotated[str | None, "the run's folder; by default runs/demo"] = None) -> int:
    """Trains for two minutes on generated images."""
    folder = out or str(_fresh(Path("runs") / "demo"))
    print("Learning to tell shapes apart, from 2 views of generated scenes and no labels (about two minutes).")
    start(configured("demo", {"out": folder}))
    print(NEXT.format(out=folder))
    return 0


def _fresh(folder: Path) -> Path:
    """Returns the folder itself while its run is not complete, else the next free name."""
    tried = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next((each for each in tried if not (each / "encoder.safetensors").exists()), tried[-1])
