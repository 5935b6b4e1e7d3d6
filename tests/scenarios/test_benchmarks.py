"""The benchmarks run, and say what they leave out."""

from __future__ import annotations

import pytest

from scenarios.benchmarks import bench, windows


@pytest.mark.long
def test_a_window_is_measured_in_a_process_of_its_own() -> None:
    """The program of the memory part once named modules that had moved."""
    run = windows.run_process("fill_large_window(300)")
    assert run["met"] == 1.0
    assert run["certified"] > run["learn"] > 0.0
    assert run["megabytes"] < 500.0


def test_windows_beyond_the_limit_are_left_out_with_the_reason() -> None:
    """Not an error, and not a row that is missing."""
    row = windows.measure_large_windows((10**7,))[-1]
    assert row.startswith("| N = 10,000,000 | left out: size=10000000 must be at most ")


def test_one_section_does_not_write_the_page() -> None:
    """The page is written whole or not at all."""
    with pytest.raises(SystemExit):
        bench.main(["landmarks", "--write"])
