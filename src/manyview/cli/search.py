"""The command `manyview search`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from manyview.cli.embed import Model, Pretrained, Size, Stem, Weights
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.embeddings import read
from manyview.embeddings.search import check_picture, maker, query_view, read_as, same_file, save_picture
from manyview.embeddings.search import picture as contact_sheet
from manyview.embeddings.search import search as nearest


def search(
    encoder: Model,
    image: Annotated[str, "the file of the query, which is left out of the results if it was embedded itself"],
    *,
    embeddings: Annotated[str, "the file that `manyview embed` wrote"],
    view: Annotated[str | None, "the view of IMAGE, with one encoder per view; by default its folder's name, or "
                                "of two the one that was not embedded"] = None,
    top: Annotated[Count, "the number of neighbours"] = 10,
    picture: Annotated[str | None, "the file of the picture; by default nearest-IMAGE.png"] = None,
    no_picture: Annotated[bool, "print the list alone"] = False,
    root: Annotated[str | None, "the folder of the images, if they were moved"] = None,
    pretrained: Pretrained = False,
    weights: Weights = None,
    size: Size = None,
    stem: Stem = None,
) -> int:  # fmt: skip
    """Finds the embedded images nearest to IMAGE by cosine, as a list and as a picture.

    IMAGE may be of another view than those: a thermal picture finds the RGB pictures that fit it.
    """
    if not os.path.exists(image):
        raise UserError("image", f"there is no file {printable(image)}; give a picture's")
    to = Path(picture or f"nearest-{Path(image).stem}.png")
    if not no_picture:
        _check_picture(to, image, embeddings)
    found = read(embeddings)
    if root is not None:
        if not os.path.isdir(root):
            raise UserError("root", f"there is no folder {printable(root)}; give where the images are now")
        found = replace(found, about=replace(found.about, root=os.path.abspath(root)))
    source = maker(encoder, found, size=size, weights=weights, pretrained=pretrained, stem=stem)
    view = query_view(source, image, found, view)
    near = nearest(source, image, found, top, view=view)
    print(f"nearest to {printable(image)}{read_as(view)} among {found.described}:")
    for number, each in enumerate(near, 1):
        print(f"{number:>4}  {each.similarity:.4f}  {each.name}  {each.label}{each.mark}".rstrip())
    if not no_picture:
        save_picture(contact_sheet(image, near, found, view=view), to)
        print(f"picture {printable(str(to))}")
    return 0


def _check_picture(to: Path, image: str, embeddings: str) -> None:
    if to.suffix.lower() != ".png":
        raise UserError("picture", f"expected a file that ends in .png, got {printable(str(to))}")
    if not to.parent.is_dir():
        raise UserError("picture", f"there is no folder {printable(str(to.parent))}; make it first")
    if any(same_file(str(to), file) for file in (image, embeddings)):
        raise UserError("picture", f"{printable(str(to))} would be overwritten; give another name")
    check_picture(to)
