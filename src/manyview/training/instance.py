"""A score that needs no labels: the share of held-out images whose augmented view finds its own image first.

The metrics are "instance" (that share; chance is 1 / "instance_images"), "rankme" and "lidar" of the same held-out
images, with the most that they could be: "rankme_limit" and "lidar_limit". Of too few images there is no "lidar", but
"lidar_images", how many it needs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.config.config import Config
from manyview.data import Loader
from manyview.data.factory import some
from manyview.diagnose.lidar import copies_for, images_for, lidar
from manyview.diagnose.variance import spectrum
from manyview.encoders import Towers
from manyview.encoders.towers import SHARED
from manyview.features.embedding_pass import embedding, forward
from manyview.features.retrieval import found_first
from manyview.methods import Method
from manyview.training import pipelines, run_data
from manyview.training.retrieval import Scores

INSTANCE = "instance"
NEEDED = "lidar_images"  # how many held-out images LiDAR would need, where there are too few


class InstanceEvaluator:
    """Instance discrimination on held-out images, and RankMe and LiDAR of their encoders' features.

    Each of at most `knn_queries` held-out images is embedded whole, as in evaluation, and in augmented copies that
    depend on (seed, id) alone and so are the same at every scoring. The first copy is the query of the score; LiDAR
    takes them all. With one encoder per view, features stand side by side, of the images that have all views.
    """

    def __init__(self, data: run_data.RunData, config: Config, device: torch.device, dim: int) -> None:
        assert data.test is not None
        images = some(data.test, config.knn_queries, labelled=False)
        self.views, self.copies = tuple(data.views), copies_for(len(images), dim)
        pipeline = pipelines.whole_and_augmented(config, data.views, self.copies or 1)
        self.loader = Loader(
            images, pipeline, min(64, len(images)), shuffle=False, drop_last=False, seed=config.seed, device=device,
            workers=config.workers, max_unreadable=1.0, examples=data.met,
        )  # fmt: skip

    def __call__(self, towers: Towers) -> Scores:
        seen = self._embedded(towers)  # (n, 1 + copies, dim)
        if len(seen) < 2 or not bool(torch.isfinite(seen).all()):
            return {}
        whole, copies = seen[:, 0], seen[:, 1:]
        ranked = spectrum(whole)
        scores: Scores = {
            INSTANCE: found_first(copies[:, 0], whole), "instance_images": float(len(seen)),
            "rankme": ranked.rank, "rankme_limit": float(ranked.limit),
        }  # fmt: skip
        if self.copies is not None:
            scores |= {"lidar": lidar(copies), "lidar_limit": float(min(len(seen) - 1, seen.shape[2]))}
        else:
            scores[NEEDED] = float(images_for(seen.shape[2]))
        return scores

    def _embedded(self, towers: Towers) -> Tensor:
        """Embeds the images that can be read and have all views, whole and as copies."""
        encoders, found, start = towers.encoders, [], 0
        for batch in self.loader.epoch(0):
            there = batch.index.cpu() == torch.arange(start, start + len(batch))  # else another stands in for it
            start += len(batch)
            parts = []
            for view, copies in batch.views().items():
                encoder = encoders.get(view, encoders.get(SHARED))
                if encoder is not None:
                    parts.append(torch.stack([forward(encoder, copy, read=embedding).cpu() for copy in copies], 1))
                    there &= batch.present[view].cpu() if batch.present else True
            found.append(torch.cat(parts, 2)[there])
        return torch.cat(found)


def make_instance(
    method: Method, data: run_data.RunData, config: Config, device: torch.device
) -> InstanceEvaluator | None:
    """Makes the evaluator for methods without retrieval across views, which else is the score without labels."""
    if method.contrasted:
        return None
    return InstanceEvaluator(data, config, device, sum(each.dim for each in method.towers.encoders.values()))


def chance(scores: Scores) -> list[str]:
    """Explains the score, with its chance level, where it was measured."""
    if INSTANCE not in scores:
        return []
    count = scores["instance_images"]
    what = f"own image first: an augmented view finds its own among {count:,.0f} held-out images"
    return [f"{what}; by chance {1 / count:.1%}"]


def ranks_in_words(scores: Scores, start: Scores, whose: str = "untrained") -> list[str]:
    """Reports RankMe and LiDAR of the held-out images with their upper limits, and before training.

    whose  what the encoder was before the first step: untrained, or weights that it started from
    """
    told = []
    for name, title in (("rankme", "RankMe"), ("lidar", "LiDAR")):
        if name in scores:
            before = f", {whose} {start[name]:.0f}" if name in start else ""
            told.append(f"{title} {scores[name]:.0f} of at most {scores[f'{name}_limit']:.0f}{before}")
    if told and "lidar" not in scores:
        needed = f", {scores[NEEDED]:,.0f} or more" if NEEDED in scores else ""
        told.append(f"LiDAR needs more held-out images{needed}")
    return [f"dimensions in use on held-out images: {'; '.join(told)}"] if told else []
