"""Vectors as three tensors, x, y and z: every operation runs over long contiguous memory.

Only sums, products, quotients and square roots, which are rounded the same way on every machine and at every place of a
tensor. So a picture does not depend on the pictures that are rendered with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

Vector = tuple[Tensor, Tensor, Tensor]
Matrix = tuple[Vector, Vector, Vector]  # rows


def three(parts: Iterable[Tensor]) -> Vector:
    x, y, z = parts
    return x, y, z


def square(parts: Iterable[Tensor]) -> Matrix:
    """Nine tensors, row by row."""
    a, b, c, d, e, f, g, h, i = parts
    return (a, b, c), (d, e, f), (g, h, i)


def plus(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def minus(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def times(a: Vector, factor: Tensor | float) -> Vector:
    return a[0] * factor, a[1] * factor, a[2] * factor


def along(origin: Vector, direction: Vector, distance: Tensor) -> Vector:
    """The points at a distance along rays."""
    return plus(origin, times(direction, distance))


def dot(a: Vector, b: Vector) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def unit(a: Vector) -> Vector:
    length = dot(a, a).sqrt().clamp_min(1e-12)
    return a[0] / length, a[1] / length, a[2] / length


def apply(matrix: Matrix, a: Vector) -> Vector:
    return dot(matrix[0], a), dot(matrix[1], a), dot(matrix[2], a)


def transposed(matrix: Matrix) -> Matrix:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return (a, d, g), (b, e, h), (c, f, i)


def product(a: Matrix, b: Matrix) -> Matrix:
    columns = transposed(b)
    first, second, third = (apply(a, column) for column in columns)
    return transposed((first, second, third))


def mix(a: Vector, b: Vector, share: Tensor) -> Vector:
    """a where share is 0, b where it is 1."""
    return plus(a, times(minus(b, a), share))
