from __future__ import annotations

import re
from pathlib import Path

from manyview.report.run_record import read_records
from manyview.report.sections.curves import curves
from manyview.report.sections.overview import summary
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured

TITLES = [
    "Loss", "kNN by epoch", "Own image found first", "kNN by time", "Alignment and uniformity", "Similarity",
    "Entropy of the negatives", "Dimensions in use", "RankMe of held-out images", "LiDAR of held-out images",
    "Coupling", "Gradient", "Learning rate",
]  # fmt: skip


def titles(text: str) -> list[str]:
    return re.findall("<h3>([^<]*)</h3>", text)


def test_all_that_training_wrote_down_is_drawn(run: Run) -> None:
    text = curves(read_records([run]))
    assert titles(text) == TITLES
    assert 'class="strip"' in text


def test_several_runs_share_each_chart(run: Run, other: Run) -> None:
    text = curves(read_records([run, other]))
    assert "Gap of similarities" in titles(text)
    loss = text.partition("<h3>Loss</h3>")[2].partition("</svg>")[0]
    assert re.findall('data-name="([^"]*)"', loss) == ["dcl", "simclr"]


def test_what_was_not_measured_is_not_drawn(run: Run, tmp_path: Path) -> None:
    found = measured(
        copy(run, tmp_path / "a"), {"step": 1, "epoch": 1, "loss": 2.0}, {"step": 2, "epoch": 1, "loss": 1.0}
    )
    assert titles(curves([found])) == ["Loss"]


def test_a_linear_probe_during_training_has_its_chart(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": step, "knn": 0.5, "linear": 0.6} for step in (0, 1, 2)]
    found = titles(curves([measured(copy(run, tmp_path / "a"), *lines)]))
    assert found == ["kNN by epoch", "kNN by time", "Linear probe by epoch"]


def test_without_measurements_the_section_says_so(run: Run, tmp_path: Path) -> None:
    assert "is left out: metrics.jsonl holds no measurement yet" in curves(read_records([copy(run, tmp_path / "a")]))


def test_the_loss_on_held_out_images_is_drawn_beside(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 2.0, "validation_loss": 2.5} for step in (1, 2)]
    assert 'data-name="held-out"' in curves([measured(copy(run, tmp_path / "a"), *lines)])


def test_every_term_has_a_curve_in_a_chart_of_its_own(run: Run, tmp_path: Path) -> None:
    lines = [
        {"step": step, "epoch": 1, "loss": 3.0, "loss/crops": 2.0, "loss/<jigsaw>": 1.0, "validation_loss": 2.5}
        for step in (1, 2)
    ]
    found = measured(copy(run, tmp_path / "a"), *lines)
    text = curves([found])
    assert re.findall('data-name="([^"]*)"', text) == ["training", "held-out", "crops", "&lt;jigsaw&gt;"]
    assert titles(text) == ["Loss", "Loss by term"]


VIEWS = {
    "loss/rgb to <i>": 2.0, "loss/<i> to rgb": 2.0, "bound/rgb to <i>": 1.5, "bound/<i> to rgb": 1.5,
    "recall@1/rgb to <i>": 0.25, "recall@1/<i> to rgb": 0.5, "recall@5/rgb to <i>": 0.5, "recall@1": 0.375,
    "pairs/rgb to <i>": 20.0, "pairs/<i> to rgb": 20.0, "knn": 0.4, "knn/rgb": 0.3, "knn/<i>": 0.2,
}  # fmt: skip


def test_a_run_of_several_views_has_curves_of_each_edge_and_each_view(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *({"step": step, "epoch": 1, "loss": 4.0, **VIEWS} for step in (1, 2)))
    text = curves([found])
    of_views = ["Loss by term", "Bound on mutual information", "Recall@1 across views", "kNN by view"]
    assert [title for title in titles(text) if title in of_views] == of_views
    names = {part.partition("</h3>")[0]: re.findall('data-name="([^"]*)"', part) for part in text.split("<h3>")[1:]}
    edges = ["rgb to &lt;i&gt;", "&lt;i&gt; to rgb"]
    assert names["Loss by term"] == names["Bound on mutual information"] == edges
    assert names["Recall@1 across views"] == [*edges, "chance"]
    assert names["kNN by view"] == ["rgb", "&lt;i&gt;", "side by side"]
    assert "chance: from 5% to 5%" in text


def test_runs_of_several_views_side_by_side_have_their_mean_recall(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 4.0, **VIEWS} for step in (1, 2)]
    found = [measured(copy(run, tmp_path / name), *lines) for name in ("a", "b")]
    assert "Recall@1 across views, mean" in titles(curves(found))


def test_beside_another_run_a_run_of_several_terms_has_one_curve(run: Run, other: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 3.0, "loss/crops": 2.0, "loss/jigsaw": 1.0} for step in (1, 2)]
    found = measured(copy(run, tmp_path / "a"), *lines)
    loss = curves([found, read_records([other])[0]]).partition("</svg>")[0]
    assert len(re.findall("data-name=", loss)) == 2


def test_the_health_is_a_strip_of_as_many_steps(run: Run, tmp_path: Path) -> None:
    words = [(10, "starting"), (20, "starting"), (30, "healthy"), (70, "diverging")]
    lines = [{"step": step, "epoch": 1, "loss": 1.0, "health": word} for step, word in words]
    text = curves([measured(copy(run, tmp_path / "a"), *lines)])
    assert (
        "Health over the steps: starting for 20 steps, then healthy for 10 steps, then diverging for 40 steps" in text
    )


def test_each_of_several_views_has_a_strip_of_its_own(run: Run, tmp_path: Path) -> None:
    words = [(10, "starting", "starting"), (20, "collapsing", "healthy"), (30, "collapsing", "healthy")]
    lines = [
        {"step": step, "loss": 1.0, "health": one, "health/<i>": one, "health/rgb": other} for step, one, other in words
    ]
    found = measured(copy(run, tmp_path / "a"), *lines)
    assert found.odd == 0
    assert found.view_health == {"<i>": "collapsing", "rgb": "healthy"}
    text = curves([found])
    assert text.count('class="strip"') == 3
    assert "Health &lt;i&gt; over the steps: starting for 10 steps, then collapsing for 20 steps" in text
    assert "Health rgb over the steps: starting for 10 steps, then healthy for 20 steps" in text
    assert "(by view: <i> collapsing, rgb healthy)" in summary(found)
