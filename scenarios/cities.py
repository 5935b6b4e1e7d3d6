"""cities: a map from nothing but a table of distances, and why the Earth is not flat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import streamembed as se
from scenarios.pictures.embedding_gallery import procrustes
from scenarios.scenario import Expected, Outcome, Scenario
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread

EARTH = 6371.0  # mean radius, km
# Degrees north and east, to a tenth.
EUROPE = {
    "Amsterdam": (52.4, 4.9),
    "Athens": (38.0, 23.7),
    "Barcelona": (41.4, 2.2),
    "Belgrade": (44.8, 20.5),
    "Bergen": (60.4, 5.3),
    "Berlin": (52.5, 13.4),
    "Bordeaux": (44.8, -0.6),
    "Bucharest": (44.4, 26.1),
    "Budapest": (47.5, 19.0),
    "Copenhagen": (55.7, 12.6),
    "Dublin": (53.3, -6.3),
    "Edinburgh": (55.9, -3.2),
    "Hamburg": (53.6, 10.0),
    "Helsinki": (60.2, 24.9),
    "Istanbul": (41.0, 29.0),
    "Kyiv": (50.5, 30.5),
    "Lisbon": (38.7, -9.1),
    "London": (51.5, -0.1),
    "Lyon": (45.8, 4.8),
    "Madrid": (40.4, -3.7),
    "Milan": (45.5, 9.2),
    "Minsk": (53.9, 27.6),
    "Munich": (48.1, 11.6),
    "Naples": (40.9, 14.3),
    "Oslo": (59.9, 10.8),
    "Palermo": (38.1, 13.4),
    "Paris": (48.9, 2.4),
    "Prague": (50.1, 14.4),
    "Reykjavik": (64.1, -21.9),
    "Riga": (56.9, 24.1),
    "Rome": (41.9, 12.5),
    "Saint Petersburg": (59.9, 30.3),
    "Seville": (37.4, -6.0),
    "Sofia": (42.7, 23.3),
    "Stockholm": (59.3, 18.1),
    "Trondheim": (63.4, 10.4),
    "Vienna": (48.2, 16.4),
    "Vilnius": (54.7, 25.3),
    "Warsaw": (52.2, 21.0),
    "Zagreb": (45.8, 16.0),
}
ELSEWHERE = {
    "Anchorage": (61.2, -149.9),
    "Auckland": (-36.8, 174.8),
    "Bangkok": (13.8, 100.5),
    "Beijing": (39.9, 116.4),
    "Bogota": (4.7, -74.1),
    "Buenos Aires": (-34.6, -58.4),
    "Cairo": (30.0, 31.2),
    "Cape Town": (-33.9, 18.4),
    "Chicago": (41.9, -87.6),
    "Dakar": (14.7, -17.4),
    "Delhi": (28.6, 77.2),
    "Honolulu": (21.3, -157.9),
    "Jakarta": (-6.2, 106.8),
    "Lagos": (6.5, 3.4),
    "Lima": (-12.0, -77.0),
    "Los Angeles": (34.1, -118.2),
    "Manila": (14.6, 121.0),
    "Mexico City": (19.4, -99.1),
    "Mumbai": (19.1, 72.9),
    "Nairobi": (-1.3, 36.8),
    "New York": (40.7, -74.0),
    "Perth": (-32.0, 115.9),
    "Rio de Janeiro": (-22.9, -43.2),
    "Singapore": (1.4, 103.8),
    "Sydney": (-33.9, 151.2),
    "Tokyo": (35.7, 139.7),
}


@dataclass(frozen=True, eq=False)
class CityMap:
    """The map of some cities.

    Attributes
    ----------
    names : list of str
    degrees : (n, 2)
        North and east.
    snapshot : Snapshot
        Its coordinates are kilometres.
    """

    names: list[str]
    degrees: Floats
    snapshot: se.Snapshot


def run(full: bool) -> Outcome:
    """Learn distance rows, a city at a time; hold the maps against projections of the globe."""
    with one_blas_thread():
        europe, world = learn(EUROPE, 2), learn(EUROPE | ELSEWHERE, 3)
    flat, truth = europe.snapshot, project(europe.degrees)
    apart = np.linalg.norm(align(flat.coordinates, truth) - truth, axis=1)
    globe = EARTH * directions(world.degrees)
    shown = world.snapshot.coordinates
    heights = np.linalg.norm(shown - fit_centre(shown), axis=1)
    figures = {
        "europe_cities": float(len(europe.names)),
        "europe_met": float(bool(flat.certificate.met)),
        "europe_negative_mass": flat.certificate.negative_mass,
        "europe_error": procrustes(flat.coordinates, truth),
        "europe_worst_km": float(apart.max()),
        "world_cities": float(len(world.names)),
        "world_met": float(bool(world.snapshot.certificate.met)),
        "world_negative_mass": world.snapshot.certificate.negative_mass,
        "world_flat_error": procrustes(shown[:, :2], project(world.degrees)),
        "world_round_error": procrustes(shown * _size(globe) / _size(shown), globe),
        "world_unevenness": float(heights.std() / heights.mean()),
    }
    notes = [
        "Europe against the azimuthal equidistant projection from the mean of its cities, in km; "
        f"{europe.names[int(apart.argmax())]} is farthest from its place",
        "the world in three coordinates against the globe, of whose size the map is "
        f"{_size(shown) / _size(globe):.2f}: distances along the ground are longer than through it",
    ]
    return Outcome(figures, {}, notes)


def learn(cities: dict[str, tuple[float, float]], n_components: int) -> CityMap:
    """Classical scaling of cities, in whose order there is no geography."""
    names = sorted(cities)
    names = [names[i] for i in np.random.default_rng(0).permutation(len(names))]
    degrees = np.array([cities[name] for name in names])
    engine = se.Engine("classical_mds", n_components, memory="all", warm_up=10, chunk_size=1)
    for t, name in enumerate(names):
        engine.learn_distances([great_circle(degrees[t], degrees[:t])], ids=[name])
    return CityMap(names, degrees, engine.snapshot())


def great_circle(here: Floats, there: Floats) -> Floats:
    """Kilometres along the ground, by the haversine formula; degrees north and east.

    Examples
    --------
    >>> import numpy as np
    >>> london, paris = np.array(EUROPE["London"]), np.array([EUROPE["Paris"]])
    >>> bool(abs(great_circle(london, paris)[0] - 344) < 10)
    True
    """
    (north, east), (norths, easts) = np.radians(here), np.radians(there).T
    half = (
        np.sin((norths - north) / 2) ** 2
        + np.cos(north) * np.cos(norths) * np.sin((easts - east) / 2) ** 2
    )
    distances: Floats = 2 * EARTH * np.arcsin(np.sqrt(np.minimum(half, 1.0)))
    return distances


def directions(degrees: Floats) -> Floats:
    """Unit vectors from the centre of the Earth."""
    north, east = np.radians(degrees).T
    return np.column_stack(
        [np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)]
    )


def compute_tangents(up: Floats) -> Floats:
    """Unit vectors east and north at a place ``up``, as columns."""
    eastward = np.cross([0.0, 0.0, 1.0], up)
    eastward /= np.linalg.norm(eastward)
    return np.column_stack([eastward, np.cross(up, eastward)])


def project(degrees: Floats, among: Floats | None = None) -> Floats:
    """Azimuthal equidistant projection from the mean of cities: km east, km north.

    The mean is that of ``among``, where that is given.
    """
    unit = directions(degrees)
    up = unit.mean(axis=0) if among is None else directions(among).mean(axis=0)
    up /= np.linalg.norm(up)
    plane = unit @ compute_tangents(up)
    far = EARTH * np.arccos(np.clip(unit @ up, -1.0, 1.0))
    result: Floats = plane * (far / np.maximum(np.linalg.norm(plane, axis=1), 1e-12))[:, None]
    return result


def align(source: Floats, truth: Floats) -> Floats:
    """``given`` turned, mirrored and moved to where it is nearest to ``truth``, not scaled."""
    middle, home = source.mean(axis=0), truth.mean(axis=0)
    left, _, right = np.linalg.svd((source - middle).T @ (truth - home))
    moved: Floats = (source - middle) @ (left @ right) + home
    return moved


def _size(points: Floats) -> float:
    return float(np.linalg.norm(points - points.mean(axis=0)))


def fit_centre(points: Floats) -> Floats:
    """The centre of the sphere that fits best: |y|^2 = 2 c y + const, by least squares."""
    terms = np.column_stack([2.0 * points, np.ones(len(points))])
    solution = np.linalg.lstsq(terms, (points**2).sum(axis=1), rcond=None)[0]
    return np.asarray(solution[:-1])


SCENARIO = Scenario(
    id="cities",
    says="cities known only by the distances between them: Europe as a map, the world as a globe",
    run=run,
    expected={
        "europe_met": Expected(1, 1, "certified"),
        "europe_error": Expected(0, 0.01, "curvature: (radius / Earth's)^2 / 6 at 1,500 km"),
        "europe_negative_mass": Expected(1e-6, 0.05, "nearly flat, but not quite"),
        "world_met": Expected(1, 1, "certified, though these are no points' distances"),
        "world_negative_mass": Expected(0.1, 0.5, "the Earth is not flat"),
        "world_flat_error": Expected(0.1, 1, "no plane map of the world is right"),
        "world_round_error": Expected(0, 0.2, "three coordinates make a globe"),
    },
)
