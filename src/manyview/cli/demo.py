"""`manyview demo`"""

from pathlib import Path
from typing import Annotated

from manyview.training.launch import configured, start

NEXT = """
What to do next:
  what was learnt, as a page for a browser     {out}/report.html
  your own images: what is in a folder         manyview check FOLDER
  and an encoder trained on them               manyview pretrain --data FOLDER
  another objective: jcl, cacr, moco_v2, ...   manyview list methods
  how good it is, beside the untrained one     manyview evaluate {out}
  which objective is better                    manyview compare --data scenes --methods simclr,dcl,cacr --epochs 2
  the encoder for somewhere else               manyview export {out} --to onnx
  the encoder in Python                        encoder = manyview.load("{out}")
                                               encoder(encoder.preprocess("cat.jpg"))"""


def demo(*, out: Annotated[str | None, "the run's folder; by default runs/demo"] = None) -> int:
    """Two minutes of training on generated images."""
    folder = out or str(_fresh(Path("runs") / "demo"))
    print("Learning to tell shapes apart, from 2 views of generated scenes and no labels (about two minutes).")
    start(configured("demo", {"out": folder}))
    print(NEXT.format(out=folder))
    return 0


def _fresh(folder: Path) -> Path:
    """The folder itself while its run can go on, else the next that is free."""
    tried = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next((each for each in tried if not (each / "encoder.safetensors").exists()), tried[-1])
