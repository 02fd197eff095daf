"""The verdict on runs that really train, well or badly: a small network on points whose views are noisy copies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import methods
from manyview.data import Scenes
from manyview.diagnose import Health, Verdict, flat_share, measure
from manyview.diagnose.measures import measure_step
from manyview.encoders import create
from manyview.evaluate import knn
from manyview.losses import LOSSES, attraction, cacr, info_nce
from manyview.memories import Memory, queue
from manyview.methods import BatchOutputs, Method
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import Topology, each_copy, every_copy, query_against_keys
from manyview.views import AUGMENTATIONS
from tests.methods.small import WITHOUT_NEGATIVES, doubled, images, outputs_of

Reports = list[tuple[int, Verdict]]
POINTS, CLASSES, DIM = 2000, 10, 64


@dataclass
class Run:
    """A training of `steps` steps, measured every 10th."""

    loss: Callable[..., Tensor] = info_nce
    temperature: float | None = 0.2
    batch: int = 64
    lr: float = 0.1
    steps: int = 121
    noise: float = 0.5
    topology: Topology = every_copy
    queue: int = 0
    normalize: bool = True
    coupled: bool = True
    offset: float = 0.0  # a bias that makes all vectors of the untrained network alike
    waist: int = 64  # the narrowest layer
    scored: bool = False
    spread: float = 2.0  # of the classes
    seed: int = 0

    def reports(self, health: Health | None = None) -> Reports:
        torch.manual_seed(self.seed)
        health = Health(coupled=self.coupled) if health is None else health
        self.labels = torch.arange(POINTS) % CLASSES
        self.points = self.spread * torch.randn(CLASSES, 32)[self.labels] + torch.randn(POINTS, 32)
        narrow = [nn.Linear(64, self.waist), nn.BatchNorm1d(self.waist)] if self.waist < 64 else []
        head = nn.Linear(self.waist, DIM)
        nn.init.constant_(head.bias, self.offset)
        self.net = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), *narrow, head)
        self.memory = queue(DIM, size=self.queue, enqueue="each") if self.queue else Memory()
        optimizer = torch.optim.SGD(self.net.parameters(), self.lr, momentum=0.9)
        return [(step, health.verdict()) for step in range(self.steps) if self._step(step, optimizer, health)]

    def _step(self, step: int, optimizer: torch.optim.Optimizer, health: Health) -> bool:
        ids = torch.randperm(POINTS)[: self.batch]
        copies = [self._embed(self.points[ids] + self.noise * torch.randn(self.batch, 32)) for _ in range(2)]
        if not self.queue:
            triples = self.topology(Embeddings(copies, ids), self.memory)
        else:
            triples = query_against_keys(Embeddings(copies[:1], ids, [copies[1].detach()]), self.memory)
        options: dict[str, Any] = {} if self.temperature is None else {"temperature": self.temperature}
        loss = total(triples, self.loss, **options)
        optimizer.zero_grad()
        loss.backward()
        gradient = float(nn.utils.get_total_norm([p.grad for p in self.net.parameters() if p.grad is not None]))
        if step % 10 == 0:
            query, positives, negatives, *_ = triples[0]
            measures = measure(query, positives, negatives, temperature=self.temperature, t_neg=2.0)
            health.update(step, measures, loss=float(loss.detach()), gradient=gradient, **self._scores(step))
        optimizer.step()
        self.memory.update([copies[1].detach()], ids, ids)
        return step % 10 == 0

    def _embed(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.net(x)
        return F.normalize(embedded, dim=1) if self.normalize else embedded

    @torch.no_grad()
    def _scores(self, step: int) -> dict[str, Any]:
        if not self.scored or step % 250:
            return {}
        z = self.net.eval()(self.points)
        self.net.train()
        score = knn(z[:500], self.labels[:500], z[500:800], self.labels[500:800])
        return {"scores": {"knn": score}} if step else {"untrained": {"knn": score}}


def only_attraction(query: Tensor, positives: Tensor, negatives: object) -> Tensor:
    return attraction(query, positives)


uaur = partial(cacr, attract="uniform", repel="uniform")
without_temperature: dict[str, Any] = {"temperature": None, "coupled": False, "topology": each_copy}

HEALTHY = {
    "info_nce": Run(),
    "a low temperature": Run(temperature=0.07, noise=2.0),
    "a high temperature": Run(temperature=1.0),
    "a small batch": Run(batch=16, noise=2.0),
    "dcl": Run(LOSSES["dcl"], coupled=False, temperature=0.1),
    "hard_negative": Run(LOSSES["hard_negative"], temperature=0.5),
    "cacr": Run(cacr, **without_temperature),
    "uaur": Run(uaur, **without_temperature),
    "align_uniform": Run(LOSSES["align_uniform"], **without_temperature),
    "queue": Run(queue=1024),
    "jcl": Run(LOSSES["jcl"], queue=1024),
    "begins all alike": Run(offset=3.0),
    "begins all alike and warms up slowly": Run(offset=3.0, lr=1e-5),
}


SLOW = ("begins all alike and warms up slowly",)  # which has not begun to learn when it ends


def calm(verdict: Verdict) -> bool:
    return verdict.level in ("healthy", "unknown")


@pytest.mark.parametrize("name", list(HEALTHY))
def test_a_healthy_run_raises_no_alarm(name: str) -> None:
    reports = HEALTHY[name].reports()
    assert [verdict.text for _, verdict in reports if not calm(verdict)] == []
    assert reports[0][1].word == "starting"
    assert reports[-1][1].word == ("not learning yet" if name in SLOW else "healthy")


def test_an_untrained_network_that_finds_all_images_alike_is_what_the_test_has() -> None:
    health = Health(coupled=True)
    HEALTHY["begins all alike and warms up slowly"].reports(health)
    assert health.first["query_similarity"] > 0.98


def last(run: Run) -> Verdict:
    return run.reports()[-1][1]


def test_attraction_alone_collapses() -> None:
    verdict = last(Run(only_attraction, lr=10.0, **without_temperature))
    assert (verdict.level, verdict.word) == ("bad", "collapsing")
    assert "all images are becoming the same vector (similarity of different images 0.9" in verdict.text


def test_attraction_alone_collapses_also_where_all_were_alike_at_first() -> None:
    assert last(Run(only_attraction, offset=3.0, lr=10.0, **without_temperature)).word == "collapsing"


def test_a_network_with_a_narrow_waist_has_collapsed_dimensions() -> None:
    verdict = last(Run(waist=2))
    assert (verdict.level, verdict.word) == ("warning", "collapsed dimensions")
    assert "of 64 possible dimensions: start again (another --out) with a lower --lr" in verdict.text


def test_a_far_too_high_learning_rate_is_a_collapse_of_one_kind_or_the_other() -> None:
    assert last(Run(lr=300.0)).word in ("collapsing", "collapsed dimensions")


def test_vectors_of_no_fixed_length_diverge_at_a_high_learning_rate() -> None:
    reports = Run(normalize=False, lr=1.0).reports()
    assert reports[0][1].word == "starting"
    assert (reports[1][1].level, reports[1][1].word) == ("bad", "diverging")
    assert reports[-1][1].text.startswith("diverging since step 10: the loss is nan")


def test_too_few_negatives_saturate_a_coupled_loss() -> None:
    verdict = last(Run(batch=4, noise=0.1, lr=0.02))
    assert (verdict.level, verdict.word) == ("warning", "saturated")
    assert "its 6 negatives (q_B 0.0" in verdict.text
    assert "dcl" in verdict.text


def test_a_decoupled_loss_does_not_saturate() -> None:
    assert last(Run(LOSSES["dcl"], batch=4, noise=0.1, lr=0.02, coupled=False)).word == "healthy"


def test_views_that_share_nothing_with_the_picture_teach_nothing() -> None:
    run = Run(noise=100.0, lr=0.3, steps=1011, batch=32, scored=True, spread=0.7)
    verdict = last(run)
    assert (verdict.level, verdict.word) == ("warning", "not learning")
    assert "before training" in verdict.text


def test_a_learning_rate_of_nearly_nothing_teaches_nothing_which_needs_no_labels_to_be_seen() -> None:
    health = Health(coupled=True)
    words = [verdict.word for _, verdict in Run(lr=1e-9, steps=1041).reports(health)]
    assert set(words[6:100]) == {"not learning yet"}  # which may be, for a while
    assert words[-1] == "not learning"
    assert "4.84 tells nothing apart" in health.verdict().text  # ln(1 + 126 negatives)


def on_pictures(change: Callable[[Tensor], object], health: Health) -> Verdict:
    """A convolutional network on scenes that something was done to."""
    torch.manual_seed(0)
    raw, ids = Scenes(100, size=16).batch(torch.arange(100))["image"], torch.arange(100)
    change(raw)
    encoder = create("patchnet", size=16, widths=(4, 8), blocks=(1, 1))
    optimizer = torch.optim.SGD(encoder.parameters(), 0.05)
    for step in range(5):
        copies = AUGMENTATIONS["simclr-cifar"](16)({"image": raw}, ids, seed=0, epoch=step)["image"]
        embedded = Embeddings([F.normalize(encoder(copy), dim=1) for copy in copies], ids)
        query, positives, negatives, *_ = every_copy(embedded, Memory())[0]
        loss = info_nce(query, positives, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        measures = measure(query, positives, negatives, temperature=0.2, t_neg=2.0)
        health.update(20 * step, measures, loss=float(loss.detach()), gradient=1.0, flat=flat_share(copies[0]))
    return health.verdict()


def test_pictures_as_they_should_be_raise_no_alarm() -> None:
    assert calm(on_pictures(lambda raw: None, Health(coupled=True)))


@pytest.mark.parametrize(("count", "level"), [(12, "warning"), (100, "bad")])
def test_pictures_of_one_colour_are_broken_data(count: int, level: str) -> None:
    verdict = on_pictures(lambda raw: raw[:count].fill_(77), Health(coupled=True))
    assert (verdict.level, verdict.word) == (level, "broken data")
    assert verdict.text.startswith(f"broken data since step 40: {count}% of the pictures have one single colour")


def fed(health: Health, steps: range, **more: Any) -> Health:
    """Numbers of a healthy run, and what is to be changed in them."""
    usual = {"query_similarity": 0.4, "positive_similarity": 0.8, "rank": 30.0, "rank_limit": 128.0}
    usual |= {"coupling": 0.9, "negatives": 126.0, "negative_similarity": 0.1}
    named = {name: more.pop(name) for name in list(more) if name in usual}
    for step in steps:
        loss = 4.0 if health.measured else 5.0
        health.update(step, usual | named, **({"loss": loss, "gradient": 1.0} | more))
    return health


def test_unreadable_files_are_broken_data() -> None:
    text = fed(Health(coupled=True), range(0, 60, 20), unreadable=0.03).verdict().text
    told = "broken data since step 40: 3% of the files cannot be read"
    assert text == f"{told}: mend them, or start again (another --out) without them"


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": math.nan},
        {"flat": 0.2},
        {"query_similarity": 0.999},
        {"rank": 1.5},
        {"coupling": 0.01},
        {"scores": {"knn": 0.1}, "untrained": {"knn": 0.3}},
    ],
    ids=str,
)
def test_no_advice_is_to_change_what_a_run_keeps(wrong: dict[str, Any]) -> None:
    health = fed(Health(coupled=True), range(0, 200, 20))
    text = fed(health, range(1200, 1400, 20), **wrong).verdict().text
    assert ": start again (another --out) with " in text


def test_images_that_all_became_one_vector_before_the_second_look_have_collapsed() -> None:
    health = fed(Health(coupled=True), range(1, 2), query_similarity=0.6)
    health = fed(health, range(20, 120, 20), query_similarity=1.0, positive_similarity=1.0, rank=1.0)
    assert health.verdict().text.startswith("collapsing since step 100")


def test_images_that_were_one_vector_at_first_and_still_are_have_collapsed() -> None:
    health = fed(Health(coupled=True), range(1, 980, 20), query_similarity=0.999, positive_similarity=0.9995)
    assert calm(health.verdict())
    health = fed(health, range(1001, 1102, 20), query_similarity=0.999, positive_similarity=0.9995)
    assert health.verdict().text.startswith("collapsing since step 1001")


def test_a_loss_that_stays_is_no_fault_where_neighbours_get_better() -> None:
    health = fed(Health(coupled=True), range(1, 1200, 20), loss=4.0, scores={"knn": 0.4}, untrained={"knn": 0.3})
    assert health.verdict().level == "healthy"
    assert fed(Health(coupled=True), range(1, 1200, 20), loss=4.0).verdict().word == "not learning"


def test_a_loss_that_rose_is_not_called_healthy_whatever_else_is_well() -> None:
    health = fed(Health(coupled=True), range(0, 20, 20), loss=3.9)
    verdict = fed(health, range(20, 400, 20), loss=4.9, positive_similarity=0.9).verdict()
    assert (verdict.level, verdict.word) == ("unknown", "not learning yet")
    seen = "similarity 0.90 of positives and 0.40 of different images, 30 of 128 dimensions in use"
    assert verdict.text == f"not learning yet: not collapsed ({seen}), but: the loss is 4.9, and 3.9 at first"


def test_a_score_above_the_untrained_one_by_more_than_its_error_is_learning_and_decides() -> None:
    rose: dict[str, Any] = {"untrained": {"instance": 0.3}, "loss": 4.9}
    health = fed(
        fed(Health(coupled=True), range(0, 20, 20), loss=3.9), range(20, 400, 20), scores={"instance": 0.4}, **rose
    )
    assert health.verdict().word == "healthy"
    assert "learning: own image first 40.0%, untrained 30.0%, the loss is 4.9" in health.verdict().text
    fed(health, range(400, 420, 20), scores={"instance": 0.33}, errors={"instance": 0.04}, **rose)
    assert health.verdict().word == "not learning yet"  # within the error
    fell = fed(Health(coupled=True), range(0, 400, 20), scores={"instance": 0.3}, untrained={"instance": 0.3})
    assert fell.verdict().word == "not learning yet"  # the loss alone does not outweigh it


def test_with_labels_knn_decides_and_without_the_images_that_find_themselves() -> None:
    both = {"scores": {"knn": 0.2, "instance": 0.9}, "untrained": {"knn": 0.3, "instance": 0.1}}
    assert fed(Health(coupled=True), range(0, 400, 20), **both).verdict().word == "not learning yet"
    late = fed(Health(coupled=True), range(0, 1400, 20), scores={"instance": 0.2}, untrained={"instance": 0.3})
    assert "own image first 20.0% at best, and 30.0% before training" in late.verdict().text


def test_a_state_of_an_earlier_version_keeps_its_scores() -> None:
    health = fed(Health(coupled=True), range(0, 400, 20), scores={"knn": 0.4}, untrained={"knn": 0.3})
    state = health.state_dict()
    state["knn"] = state.pop("scores")["knn"]
    again = Health(coupled=True)
    again.load_state_dict(state)
    assert again.verdict() == health.verdict()


def test_a_loss_that_grows_without_end_diverges_before_it_is_no_number() -> None:
    health = fed(Health(coupled=True), range(0, 200, 20))
    assert fed(health, range(200, 220, 20), loss=90.0).verdict().word == "diverging"


def test_one_gradient_without_end_is_what_mixed_precision_skips_and_three_are_not() -> None:
    health = fed(Health(coupled=True), range(0, 200, 20))
    assert fed(health, range(200, 240, 20), gradient=math.inf).verdict().word == "healthy"
    assert fed(health, range(240, 260, 20), gradient=math.inf).verdict().word == "diverging"


def test_one_bad_batch_is_no_alarm_and_a_run_can_recover() -> None:
    health = fed(Health(coupled=True), range(0, 200, 20))
    assert fed(health, range(200, 220, 20), query_similarity=1.0).verdict().word == "healthy"
    assert fed(health, range(220, 320, 20), query_similarity=1.0).verdict().word == "collapsing"
    assert fed(health, range(320, 420, 20)).verdict().word == "healthy"


def test_the_gravest_sign_is_the_one_that_is_told() -> None:
    health = fed(Health(coupled=True), range(0, 200, 20), flat=0.9, coupling=0.01)
    assert health.verdict().word == "broken data"


def test_before_the_first_measurement_it_is_starting() -> None:
    assert Health(coupled=True).verdict().word == "starting"


def test_a_resumed_run_says_exactly_the_same() -> None:
    run = Run(only_attraction, lr=10.0, **without_temperature)
    whole, resumed = Health(coupled=False), Health(coupled=False)
    whole_update = whole.update

    def update(step: int, measures: dict[str, float], **more: Any) -> None:
        nonlocal resumed
        whole_update(step, measures, **more)
        state = json.loads(json.dumps(resumed.state_dict()))  # plain enough for any checkpoint
        resumed = Health(coupled=False)
        resumed.load_state_dict(state)
        resumed.update(step, measures, **more)
        assert resumed.verdict() == whole.verdict()

    whole.update = update  # type: ignore[method-assign, assignment]
    assert run.reports(whole)[-1][1].word == "collapsing"


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="state: first, measured, recent, scores, since is missing"):
        Health(coupled=True).load_state_dict({})


def test_every_sentence_is_one_line() -> None:
    for run in (Run(), Run(batch=4, noise=0.1, lr=0.02)):
        assert all("\n" not in verdict.text and len(verdict.text) < 300 for _, verdict in run.reports())


def fed_views(health: Health, steps: range, first_loss: float = 5.0, **views: dict[str, float]) -> Health:
    """Numbers of healthy views, and what is to be changed in them; the plain ones are the first view's."""
    usual = {"query_similarity": 0.4, "positive_similarity": 0.8, "rank": 30.0, "rank_limit": 128.0}
    usual |= {"coupling": 0.9, "negatives": 126.0, "negative_similarity": 0.1}
    found = {view: usual | more for view, more in views.items()}
    flat = {f"{name}/{view}": value for view, each in found.items() for name, value in each.items()}
    for step in steps:
        loss = 4.0 if health.measured else first_loss
        health.update(step, {**next(iter(found.values())), **flat}, loss=loss, gradient=1.0)
    return health


def test_each_of_several_views_is_judged_by_itself() -> None:
    health = fed_views(Health(coupled=True), range(0, 200, 20), rgb={}, thermal={})
    verdict = health.verdict()
    assert (verdict.word, verdict.short) == ("healthy", "healthy")
    assert verdict.views == {"rgb": "healthy", "thermal": "healthy"}
    each = "similarity 0.80 of positives and 0.10 of negatives, 30 of 128 dimensions in use"
    assert verdict.text == (
        f"healthy: not collapsed (rgb {each}; thermal {each}), learning: the loss is 4, and 5 at first"
    )
    fed_views(health, range(200, 320, 20), rgb={}, thermal={"query_similarity": 0.999, "rank": 1.1})
    verdict = health.verdict()
    assert (verdict.level, verdict.word, verdict.short) == ("bad", "collapsing", "thermal collapsing")
    assert verdict.views == {"thermal": "collapsing", "rgb": "healthy"}
    told = "thermal has collapsed, rgb is healthy: since step 280, in thermal, all images are becoming the same vector"
    assert verdict.text.startswith(told)
    assert ": start again (another --out) with a lower --lr" in verdict.text


def test_a_step_of_one_image_says_nothing_of_different_images() -> None:
    health = fed(Health(coupled=True), range(0, 200, 20), query_similarity=math.nan)
    assert "not collapsed (similarity 0.80 of positives, 30 of 128 dimensions in use), " in health.verdict().text
    fed(health, range(200, 220, 20))  # one step of the window with several images is enough
    assert "of positives and 0.40 of different images, " in health.verdict().text


def test_dimensions_are_told_of_what_limits_them() -> None:
    batch = {"rank": 10.0, "rank_limit": 16.0, "dim": 128.0}
    text = fed_views(Health(coupled=True), range(0, 200, 20), rgb=batch, thermal={"dim": 128.0}).verdict().text
    assert "negatives, 10 dimensions in use of at most 16, the vectors measured in a batch; thermal" in text
    assert "30 of 128 dimensions in use), learning" in text


def test_the_gravest_view_is_told_first_and_the_others_have_words_of_their_own() -> None:
    health = fed_views(Health(coupled=True), range(0, 100, 20), a={}, b={}, c={})
    fed_views(health, range(100, 300, 20), a={"coupling": 0.01}, b={}, c={"rank": 1.5})
    verdict = health.verdict()
    assert verdict.views == {"c": "collapsed dimensions", "a": "saturated", "b": "healthy"}
    assert verdict.text.startswith("c has collapsed dimensions, a is saturated, b is healthy: since step ")
    assert verdict.short == "c collapsed dimensions"


def test_views_that_are_alike_are_told_together() -> None:
    health = fed_views(Health(coupled=True), range(0, 100, 20), a={}, b={}, c={})
    fed_views(health, range(100, 300, 20), a={"coupling": 0.01}, b={"coupling": 0.01}, c={})
    verdict = health.verdict()
    assert verdict.text.startswith("a and b are saturated, c is healthy: since step ")
    assert verdict.short == "a, b saturated"


def test_what_is_wrong_with_the_whole_run_names_no_view() -> None:
    health = fed_views(Health(coupled=True), range(0, 200, 20), rgb={}, thermal={"coupling": 0.01})
    health.update(200, {}, loss=math.nan, gradient=1.0)
    assert health.verdict().text.startswith("diverging since step 200: the loss is nan")
    assert health.verdict().short == "diverging"


def test_of_several_views_one_may_learn_nothing() -> None:
    health = fed_views(Health(coupled=True), range(1, 2), 4.0, rgb={"positive_similarity": 0.5}, thermal={})
    fed_views(health, range(21, 1200, 20), rgb={}, thermal={})
    verdict = health.verdict()
    assert verdict.views == {"thermal": "not learning", "rgb": "healthy"}
    assert "tells nothing apart" not in verdict.text


def test_a_resumed_run_of_several_views_says_the_same() -> None:
    whole = fed_views(Health(coupled=True), range(0, 300, 20), rgb={}, thermal={"rank": 1.5})
    again = Health(coupled=True)
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert again.verdict() == whole.verdict()


def without_negatives(**measures: float) -> Health:
    """A run whose method has no negatives, measured often enough to be judged."""
    usual = {"query_similarity": 0.2, "positive_similarity": 0.7, "rank": 30.0, "rank_limit": 64.0, "dim": 128.0}
    health = Health(coupled=False)
    for step in range(0, 200, 20):
        first = {} if step else {"query_similarity": 0.2}
        health.update(step, usual | measures | first, loss=1.0 if step else 2.0, gradient=1.0)
    return health


def test_without_negatives_no_advice_speaks_of_them() -> None:
    assert without_negatives().verdict().word == "healthy"
    collapsed = without_negatives(query_similarity=0.999).verdict()
    assert (collapsed.level, collapsed.word) == ("bad", "collapsing")
    assert "all images are becoming the same vector" in collapsed.text
    narrow = without_negatives(rank=1.8).verdict()
    assert narrow.word == "collapsed dimensions"
    for verdict in (collapsed, narrow):
        assert "negatives" not in verdict.text
        assert "temperature" not in verdict.text
        assert "a longer warm-up" in verdict.text


ASSIGNED = {"prototypes": 1000.0, "assignment_entropy_limit": math.log(1000)}


def test_all_images_on_one_prototype_is_a_collapse() -> None:
    verdict = without_negatives(**ASSIGNED, prototypes_in_use=1.2, assignment_entropy=0.1).verdict()
    assert (verdict.level, verdict.word) == ("bad", "collapsing")
    assert "all images are assigned to the same prototype (1.2 of 1000 in use)" in verdict.text


def test_every_image_on_all_prototypes_is_a_collapse() -> None:
    verdict = without_negatives(
        **ASSIGNED, prototypes_in_use=999.0, assignment_entropy=math.log(1000) - 0.001
    ).verdict()
    assert (verdict.level, verdict.word) == ("bad", "collapsing")
    assert "every image is assigned to all 1000 prototypes alike" in verdict.text


def test_prototypes_that_share_the_images_are_healthy() -> None:
    assert without_negatives(**ASSIGNED, prototypes_in_use=300.0, assignment_entropy=2.0).verdict().word == "healthy"


def told(method: Method, spoil: Callable[[Tensor], Tensor]) -> Verdict:
    """What is said of a method whose outputs are as they come at first, and then what `spoil` makes of them."""
    batch, health = outputs_of(method, images(next(iter(method.views.values())))), Health(coupled=False)
    spoilt = {slot: spoil(each.detach()) for slot, each in batch.outputs.items()}
    for step, outputs in enumerate([batch.outputs, *[spoilt] * 9]):
        objective = method.objective(BatchOutputs(outputs, batch.ids, batch.index))
        health.update(20 * step, measure_step(method, objective), loss=float(objective.loss.detach()), gradient=1.0)
    return health.verdict()


def to_one_point(vectors: Tensor) -> Tensor:
    return vectors[:1] + 1e-4 * vectors


@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_vectors_that_become_one_are_a_collapse_of_every_method_without_negatives(name: str) -> None:
    method = doubled(getattr(methods, name))
    assert told(method, lambda vectors: vectors).word != "collapsing"
    assert told(method, to_one_point).word == "collapsing"


def test_vectors_that_shrink_are_a_collapse_of_vicreg_and_nothing_to_barlow_twins() -> None:
    """Their directions stay as unlike as they were, and the invariance alone makes the loss fall."""
    verdict = told(doubled(methods.vicreg), lambda vectors: 1e-3 * vectors)
    assert (verdict.level, verdict.word) == ("bad", "collapsing")
    assert "and the loss wants 1" in verdict.text
    assert "--decorrelation.variance" in verdict.text
    assert told(doubled(methods.barlow_twins), lambda vectors: 1e-3 * vectors).word != "collapsing"
