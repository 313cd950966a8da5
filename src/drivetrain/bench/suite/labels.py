"""Places the labels of points so that no two cover each other. Knows nothing of figures; units are pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Box", "place_labels"]

# Directions around a point in the order of preference: right, left, above, below, then the diagonals.
_DIRECTIONS = (0, 180, 90, 270, 30, 150, 330, 210, 60, 120, 300, 240)
_GAP = 2.0
_RING = 6.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its centre and size."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "Box", *, gap: float = 0.0) -> bool:
        """Whether two boxes share more than an edge, or are nearer to each other than `gap`."""
        near_x = abs(self.x - other.x) < (self.width + other.width) / 2 + gap
        near_y = abs(self.y - other.y) < (self.height + other.height) / 2 + gap
        return near_x and near_y

    def is_inside(self, other: "Box") -> bool:
        """Whether this box lies within another."""
        fits_x = abs(self.x - other.x) <= (other.width - self.width) / 2
        fits_y = abs(self.y - other.y) <= (other.height - self.height) / 2
        return fits_x and fits_y


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    *,
    area: Box,
    marker: float,
    also_free: Sequence[tuple[float, float]] = (),
    taken: Sequence[Box] = (),
) -> list[Box | None]:
    """A box for the label of each point, near it; None for a label for which the area has no room.

    No box covers another, one in `taken`, or a point; points, `also_free` too, are `marker` wide. Labels with
    the most points around them are placed first, as they have the fewest places to choose from.
    """
    markers = [Box(x, y, marker, marker) for x, y in (*points, *also_free)]
    reach = 4 * max((width for width, _ in sizes), default=0.0)
    crowd = [sum(math.dist(point, (m.x, m.y)) < reach for m in markers) for point in points]
    placed: dict[int, Box] = {}
    for index in sorted(range(len(points)), key=lambda index: -crowd[index]):
        found = _free_place(
            points[index], sizes[index], taken=[*taken, *placed.values(), *markers], area=area, marker=marker
        )
        if found is not None:
            placed[index] = found
    return [placed.get(index) for index in range(len(points))]


def _free_place(
    point: tuple[float, float], size: tuple[float, float], *, taken: Sequence[Box], area: Box, marker: float
) -> Box | None:
    """The first free place on rings around a point that grow until they leave the area."""
    width, height = size
    farthest = math.hypot(area.width, area.height)
    distance = marker / 2 + _GAP
    while distance < farthest:
        for degrees in _DIRECTIONS:
            cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            # The near edge of the box, not its centre, is `distance` away.
            box = Box(
                point[0] + cosine * (distance + width / 2),
                point[1] + sine * (distance + height / 2),
                width,
                height,
            )
            if box.is_inside(area) and not any(box.overlaps(other, gap=_GAP / 2) for other in taken):
                return box
        distance += _RING
    return None
