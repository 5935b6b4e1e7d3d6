"""One BLAS thread for the oracles too: two processes of two threads each stand in their way."""

from __future__ import annotations

from collections import Counter

import numpy  # noqa: F401  limits reach only libraries that are loaded: numpy's OpenBLAS
import pytest
import scipy.linalg  # noqa: F401  and scipy's, which is another
from threadpoolctl import threadpool_limits

threadpool_limits(limits=1, user_api="blas")

# Families of tests over many settings, of which every k-th runs each time; `make soak` runs all.
THINNED = {
    "test_a_phone_and_the_dark": 2,
    "test_a_run_is_its_engine_whatever_it_is_given": 2,
    "test_an_interrupt_anywhere_leaves_offset_and_position_together": 2,
    "test_any_cut_and_any_save_give_the_same_bits": 3,
    "test_any_half_life_keeps_the_map_finite": 3,
    "test_any_map_of_distances_takes_a_function_of_two": 3,
    "test_claims_are_above_the_truth_and_near_it": 2,
    "test_distances_are_as_good_as_points": 2,
    "test_distances_are_kept": 3,
    "test_every_chunk_is_what_its_certificate_says": 3,
    "test_flipped_bits_never_escape_as_another_exception": 3,
    "test_hard_data_have_finite_bounded_pictures": 3,
    "test_hard_data_have_finite_maps": 3,
    "test_landmarks_with_mass_are_kept_exact": 3,
    "test_memory_is_flat": 3,
    "test_no_flipped_bit_is_silent": 3,
    "test_points_far_from_the_first_keep_their_digits": 3,
    "test_rivers_checks": 2,
    "test_rivers_checks_of_a_classifier": 3,
    "test_scikit_learns_checks": 3,
    "test_snapshots_are_those_of_a_replay_without": 2,
    "test_snapshots_beside_a_learner_are_those_of_their_position": 2,
    "test_symmetries": 3,
    "test_the_metric_stays_one": 3,
    "test_the_operator_is_that_of_the_frozen_widths": 3,
    "test_the_plain_view_says_how_far_it_is_off": 3,
    "test_the_warm_up_begins_with_the_first_number": 3,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the others as ``long``."""
    met: Counter[tuple[str, str]] = Counter()
    for item in items:
        name = getattr(item, "originalname", item.name)
        every = THINNED.get(name)
        if every is None or item.get_closest_marker("long"):
            continue
        family = str(item.path), name
        if met[family] % every:
            item.add_marker("long")
        met[family] += 1
