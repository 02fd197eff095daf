from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import contrast, losses
from manyview.core.negatives import Negatives
from manyview.memories import Queue
from manyview.methods.topologies import (
    core_view,
    each_view,
    each_view_against_keys,
    every_view,
    full_graph,
    query_against_keys,
    total,
    view_pairs,
    views_against_keys,
)

N, D = 5, 4


def views(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [F.normalize(torch.randn(N, D, generator=generator, dtype=torch.float64), dim=1) for _ in range(count)]


def softmax_loss(query: Tensor, positive: Tensor, negatives: list[Tensor], temperature: float) -> Tensor:
    scores = torch.stack([query @ positive, *(query @ k for k in negatives)]) / temperature
    return scores.logsumexp(0) - scores[0]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_view_meets_all_views_of_other_images(count: int) -> None:
    z = views(count)
    expected = []
    for v in range(count):
        for i in range(N):
            others = [z[u][j] for u in range(count) for j in range(N) if j != i]
            expected += [softmax_loss(z[v][i], z[u][i], others, 0.2) for u in range(count) if u != v]
    actual = total(every_view(z), losses.info_nce, temperature=0.2)
    torch.testing.assert_close(actual, torch.stack(expected).mean())


def test_each_view_meets_the_same_view_of_other_images() -> None:
    z = views(3)
    expected = []
    for v in range(3):
        for i in range(N):
            others = [z[v][j] for j in range(N) if j != i]
            expected += [softmax_loss(z[v][i], z[u][i], others, 0.2) for u in range(3) if u != v]
    torch.testing.assert_close(total(each_view(z), losses.info_nce, temperature=0.2), torch.stack(expected).mean())


def test_one_query_meets_its_keys_and_given_negatives() -> None:
    query, first, second, queue = views(4)
    (triple,) = query_against_keys(query, [first, second], Negatives(queue))
    assert torch.equal(triple.positives, torch.stack([first, second], 1))
    assert triple.negatives.sources[0].keys is queue


@pytest.mark.parametrize("within_batch", [0.0, 1.0, 0.5])
def test_each_view_in_turn_meets_the_other_views_keys_a_queue_and_the_batch(within_batch: float) -> None:
    z, keys, queue = views(3), views(4)[:3], views(5)[0]
    triples = each_view_against_keys(z, keys, Negatives(queue), within_batch=within_batch)
    assert [t.weight for t in triples] == [1 / 3] * 3
    for v, triple in enumerate(triples):
        assert triple.query is z[v]
        assert torch.equal(triple.positives, torch.stack([keys[u] for u in range(3) if u != v], 1))
        sources = triple.negatives.sources
        assert sources[0].keys is queue
        assert len(sources) == (2 if within_batch else 1)
        if within_batch:
            assert sources[1].keys is z[v]
            assert sources[1].weight == within_batch


def test_the_graphs_have_the_papers_edges() -> None:
    assert core_view(4) == [(0, 1), (0, 2), (0, 3)]
    assert core_view(3, core=1) == [(1, 0), (1, 2)]
    assert full_graph(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def two_view_loss(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """CMC Eq. 2-4 by loops: both directions, each a mean over images."""
    result = torch.zeros((), dtype=a.dtype)
    for x, y in ((a, b), (b, a)):
        for i in range(len(x)):
            others = [y[j] for j in range(len(y)) if j != i]
            result = result + softmax_loss(x[i], y[i], others, temperature) / len(x)
    return result


@pytest.mark.parametrize("edges", [core_view(4), full_graph(4), [(2, 3)]])
def test_view_pairs_sum_over_edges_and_directions(edges: list[tuple[int, int]]) -> None:
    z = views(4)
    expected = torch.stack([two_view_loss(z[i], z[j], 0.1) for i, j in edges]).sum()
    torch.testing.assert_close(total(view_pairs(z, edges=edges), losses.info_nce, temperature=0.1), expected)


def test_an_image_that_lacks_a_view_drops_out_of_that_views_edges() -> None:
    z = [view.clone().requires_grad_() for view in views(3)]
    present = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [0, 0, 1, 0, 1]], dtype=torch.bool)
    torn = [v.masked_fill(~p[:, None], torch.nan) for v, p in zip(z, present, strict=True)]
    actual = total(view_pairs(torn, present=present), losses.info_nce, temperature=0.1)
    both = present[0] & present[1]  # edges (0, 2) and (1, 2) have one image each: they contribute 0
    assert [(present[i] & present[2]).sum().item() for i in (0, 1)] == [1, 1]
    torch.testing.assert_close(actual, two_view_loss(z[0][both], z[1][both], 0.1))
    grads = torch.autograd.grad(actual, z, allow_unused=True, materialize_grads=True)
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][~both].abs().max() == 0
    assert grads[2].abs().max() == 0


def test_where_no_edge_has_two_images_the_objective_is_zero_and_can_be_differentiated() -> None:
    none = torch.zeros(2, N, dtype=torch.bool)
    value = total(view_pairs(views(2), present=none), losses.info_nce)
    torch.autograd.backward(value)
    assert value == 0


def test_queries_meet_another_towers_keys() -> None:
    z, keys = views(2), views(3)[:2]
    expected = []
    for i, j in ((0, 1), (1, 0)):
        each = [softmax_loss(z[i][n], keys[j][n], [keys[j][m] for m in range(N) if m != n], 0.2) for n in range(N)]
        expected.append(torch.stack(each).mean())
    actual = total(views_against_keys(z, keys, edges=[(0, 1), (1, 0)]), losses.info_nce, temperature=0.2)
    torch.testing.assert_close(actual, torch.stack(expected).sum())


def test_the_same_image_twice_in_a_batch_is_no_negative_of_itself() -> None:
    z, ids = views(2), torch.tensor([0, 1, 2, 3, 0])
    expected = []
    for v in range(2):
        for i in range(N):
            others = [z[u][j] for u in range(2) for j in range(N) if ids[j] != ids[i]]
            expected.append(softmax_loss(z[v][i], z[1 - v][i], others, 0.2))
    torch.testing.assert_close(contrast(z, ids=ids), torch.stack(expected).mean())


def test_contrast_takes_a_list_or_a_tensor_a_function_or_a_name() -> None:
    z = views(2)
    raw = [3 * view for view in z]
    expected = total(every_view(z), losses.dcl, temperature=0.1)
    torch.testing.assert_close(contrast(raw, loss="dcl", temperature=0.1), expected)
    torch.testing.assert_close(contrast(torch.stack(raw), loss=losses.dcl, temperature=0.1), expected)
    assert not torch.allclose(contrast(raw, loss="dcl", temperature=0.1, normalize=False), expected)


def test_contrast_arranges_views_as_it_is_told() -> None:
    z = views(3)
    torch.testing.assert_close(contrast(z, loss="cacr", pairs=each_view), total(each_view(z), losses.cacr))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contrast(views(1)), r"views: expected 2 or more .*got 1"),
        (lambda: contrast([*views(1), views(1)[0][:3]]), r"views: .*\(5, 4\), \(3, 4\)"),
        (lambda: contrast(torch.randn(3, 4)), "views: "),
        (lambda: contrast(views(2), ids=torch.arange(4)), r"ids: expected \(5,\)"),
        (lambda: contrast(views(2), loss="infonce"), "loss: expected one of info_nce, .*'infonce'"),
        (lambda: contrast([v[:1] for v in views(2)]), "negatives: none is left for query 0"),
        (
            lambda: each_view_against_keys(views(2), views(3), Negatives(torch.randn(2, D))),
            r"keys: expected 2 views of shape \(5, 4\)",
        ),
        (lambda: query_against_keys(views(1)[0], views(2)[0], Negatives(torch.randn(2, D))), r"keys: .*\(5, 4\)"),
        (lambda: views_against_keys(views(2), views(1), edges=[(0, 1)]), r"keys: expected 2 views of shape \(5, 4\)"),
        (lambda: view_pairs(views(2), present=torch.ones(2, N)), r"present: expected bool \(V, N\) = \(2, 5\)"),
        (lambda: view_pairs(views(2), present=torch.ones(N, 2).bool()), r"present: .*got torch.bool \(5, 2\)"),
        (lambda: contrast(views(2), reduction="none"), "reduction: .*'none'"),
        (lambda: contrast([v.numpy() for v in views(2)]), "views: expected tensors, got ndarray"),  # type: ignore[misc]
        (lambda: contrast(views(2), ids=[1, 2, 3, 4, 5]), "ids: expected tensors, got list"),  # type: ignore[arg-type]
        (lambda: contrast(views(2), temperature="0.1"), "temperature: expected a number, got '0.1'"),
        (lambda: contrast(views(2), present=torch.ones(2, N).bool()), "present: .*give pairs=view_pairs"),
        (lambda: view_pairs(views(2), edges=[(0, 2)]), r"edges: expected two of the 2 views, 0 to 1, got \(0, 2\)"),
        (lambda: losses.info_nce(views(1)[0], views(1)[0][:, None], None), "negatives: .*got NoneType"),  # type: ignore[arg-type]
        (lambda: losses.info_nce(views(1)[0], views(1)[0], Negatives(views(2)[0])), r"positives\[:, None\]"),
        (lambda: losses.info_nce(views(1)[0], views(1)[0][:, None], Queue(4, D)), r"negatives: .*\.negatives"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_two_rows_of_one_image_are_one_image() -> None:
    present = torch.tensor([[1, 1, 0, 0, 1], [1, 1, 1, 1, 0]], dtype=torch.bool)
    ids = torch.tensor([4, 4, 1, 2, 3])
    assert view_pairs(views(2), ids, present=present) == []
    assert views_against_keys(views(2), views(2), ids, edges=[(0, 1)], present=present) == []


def test_missing_views_drop_out_against_another_towers_keys() -> None:
    z, keys = views(2), views(3)[:2]
    present = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1]], dtype=torch.bool)
    both = present[0] & present[1]
    expected = total(views_against_keys([v[both] for v in z], [k[both] for k in keys], edges=[(0, 1)]), losses.dcl)
    actual = total(views_against_keys(z, keys, edges=[(0, 1)], present=present), losses.dcl)
    torch.testing.assert_close(actual, expected)


def test_a_pooled_loss_pools_both_directions_of_an_edge() -> None:
    a, b = views(2)
    values = [losses.cacr(x, y[:, None], Negatives(y, torch.arange(N), torch.arange(N))) for x, y in ((a, b), (b, a))]
    torch.testing.assert_close(total(view_pairs([a, b]), losses.cacr), values[0] + values[1])
    logs = [
        losses.repulsion(x, y[:, None], Negatives(y, torch.arange(N), torch.arange(N)), cost="rbf")
        for x, y in ((a, b), (b, a))
    ]
    pooled = 2 * (torch.stack(logs).exp().mean()).log()
    torch.testing.assert_close(total(view_pairs([a, b]), losses.repulsion, cost="rbf"), pooled)


def test_contrast_makes_unit_length_in_float32() -> None:
    half = [view.to(torch.float16) for view in views(2)]
    half[0][0] = 0
    assert contrast(half, temperature=0.1).isfinite()
    wide = [view.float() for view in half]
    torch.testing.assert_close(contrast(half, temperature=0.005), contrast(wide, temperature=0.005))


def test_contrast_reads_nothing_of_an_absent_view() -> None:
    z = [view.clone().requires_grad_() for view in views(2)]
    present = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1]], dtype=torch.bool)
    torn = [v.masked_fill(~p[:, None], torch.nan) for v, p in zip(z, present, strict=True)]
    both = present[0] & present[1]
    value = contrast(torn, pairs=view_pairs, present=present, temperature=0.1)
    torch.testing.assert_close(value, two_view_loss(z[0][both], z[1][both], 0.1))
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(value, z))
