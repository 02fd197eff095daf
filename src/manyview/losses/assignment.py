"""Assignments of images to prototypes: Sinkhorn's codes (SwAV), centred and sharpened ones (DINO), and their loss."""

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.losses.checks import at_least_float32, check_positive


def cross_entropy(codes: Tensor, scores: Tensor, *, temperature: float = 0.1) -> Tensor:
    r"""How well codes are predicted: Eq. 2 of SwAV (Caron et al., NeurIPS 2020) and of DINO (Caron et al., ICCV 2021).

    L_i = - sum_k q_ik log p_ik,  p_i = softmax(s_i / t)

    codes (N, P) = q, which sum to 1, of another copy of the image; scores (N, P) = s, the inner products of this copy
    with the P prototypes; temperature = t, tau of SwAV and tau_s of DINO. A value for each image, (N,).
    """
    return -(codes * F.log_softmax(at_least_float32(scores) / temperature, dim=1)).sum(1)


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    r"""SwAV's codes (Eq. 3 to 5): Q = Diag(u) exp(S / epsilon) Diag(v), by the algorithm of Sinkhorn and Knopp.

    scores (B, P) of B images, of all processes and of a queue, by P prototypes. Returns (B, P): each row sums to 1, and
    after enough iterations each column to B / P, so that no prototype is left out. epsilon: the weight of the entropy
    in Eq. 3; less is sharper. Without gradient. A constant on all scores changes nothing, and the largest is taken off.
    """
    check_positive("epsilon", epsilon)
    if scores.dim() != 2 or not len(scores) or iterations < 1:
        raise UserError("scores", f"expected (B, P) and an iteration at least, got {tuple(scores.shape)}, {iterations}")
    wide = at_least_float32(scores)
    codes = ((wide - wide.max()) / epsilon).exp()
    images, prototypes = codes.shape
    for _ in range(iterations):
        codes = codes / (codes.sum(0) * prototypes)
        codes = codes / (codes.sum(1, keepdim=True) * images)
    return codes * images


@torch.no_grad()
def centred_codes(scores: Tensor, centre: Tensor, *, temperature: float = 0.04) -> Tensor:
    r"""DINO's codes: softmax( (s_i - c) / t ), the teacher's scores (N, P) centred by c (P,) and sharpened by a low t.

    temperature = tau_t. Without gradient. Centring alone ends in the uniform distribution and sharpening alone in one
    prototype for all (section 5.3); the two hold each other up.
    """
    check_positive("temperature", temperature)
    return F.softmax((at_least_float32(scores) - centre) / temperature, dim=1)
