"""Losses of two embeddings of an image that need no others: BYOL's distance and SimSiam's negative cosine."""

from torch import Tensor


def squared_distance(query: Tensor, key: Tensor) -> Tensor:
    """BYOL (Grill et al., NeurIPS 2020), Eq. 2: |q_i - k_i|^2 = 2 - 2 q_i.k_i.

    query (N, d) = what the predictor says, key (N, d) = the target's projection, both of unit length. A value for each
    image, (N,). The paper adds both directions; a method's weight says so.
    """
    return (query - key).square().sum(1)


def negative_cosine(query: Tensor, key: Tensor) -> Tensor:
    """SimSiam (Chen & He, CVPR 2021), Eq. 1: D(p_i, z_i) = -q_i.k_i, of unit vectors (N, d); a value each, (N,).

    It is half of BYOL's distance, less 1: the gradient is half of that.
    """
    return -(query * key).sum(1)
