"""The cluster formula against measured and published answers, and its bounds."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.machine import ctas_per_sm, load_profile, max_active_clusters, profile_names
from advisor.machine.occupancy import clusters_by_group, clusters_that_fit, free_clusters, smem_capacity

MEASURED = json.loads((Path(__file__).parents[1] / "data" / "h200_max_active_clusters.json").read_text())
KIB = 1024
FULL_SMEM = 200 * KIB  # one CTA per SM


@dataclass(frozen=True)
class Key:
    cluster_size: int
    threads: int = 128
    registers: int = 0
    smem_bytes: int = FULL_SMEM
    carveout: str = "max"


def test_the_measured_table_is_whole():
    assert len(MEASURED["rows"]) == 224


@pytest.mark.parametrize("row", MEASURED["rows"], ids=lambda row: "-".join(map(str, row.values())))
def test_the_formula_reproduces_a_measured_row_from_threads_and_smem_alone(row):
    key = Key(row["cluster_size"], row["threads"], smem_bytes=row["dynamic_smem_bytes"])
    assert max_active_clusters(load_profile("h200"), key) == row["max_active_clusters"]


@pytest.mark.parametrize(("shape", "clusters"), MEASURED["shapes_at_200KiB"].items())
def test_only_the_product_of_a_cluster_shape_counts(shape, clusters):
    x, y, z = map(int, shape.split("x"))
    assert max_active_clusters(load_profile("h200"), Key(x * y * z)) == clusters


def test_the_profile_has_the_groups_and_limits_of_the_measured_device():
    profile, limits = load_profile("h200"), MEASURED["limits"]
    assert list(profile.sm_groups) == MEASURED["sms_sharing_a_cluster"]
    assert profile.sms == MEASURED["num_sms"]
    assert profile.smem_per_block_bytes == limits["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
    assert profile.smem_per_sm_bytes == limits["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"]
    assert profile.smem_reserved_bytes == limits["RESERVED_SHARED_MEMORY_PER_BLOCK"]
    assert profile.registers_per_sm == limits["MAX_REGISTERS_PER_MULTIPROCESSOR"]
    assert profile.l2_bytes == limits["L2_CACHE_SIZE"]
    assert profile.max_clock_hz == limits["CLOCK_RATE"] * 1000


# One CTA per SM. Published as API values, wave steps or SM counts: H100 8 and 16; H200 all (measured); B200 2 to 6 and
# 8; B300 and GB200 3 to 6 and 8. The other cells follow from the published grouping and pin the data files. One GB200
# unit with 14 clusters of 8 is left out: units differ.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
PUBLISHED = {
    "h100": (132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7),
    "h200": (132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7),
    "b200": (148, 74, 45, 33, 26, 22, 15, 15, 15, 11, 7, 7, 7),
    "b300": (148, 74, 45, 33, 26, 22, 15, 15, 15, 11, 7, 7, 7),
    "gb200": (152, 76, 46, 36, 28, 23, 15, 15, 15, 13, 8, 7, 7),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_formula_reproduces_the_published_table(name):
    profile = load_profile(name)
    assert tuple(max_active_clusters(profile, Key(size)) for size in SIZES) == PUBLISHED[name]


@pytest.mark.parametrize(("size", "clusters"), [(2, 592), (4, 284), (8, 142)])
def test_the_formula_reproduces_what_is_published_for_eight_ctas_per_sm_of_a_b300(size, clusters):
    key = Key(size, threads=128, smem_bytes=16 * KIB)
    assert ctas_per_sm(load_profile("b300"), 128, 0, 16 * KIB) >= 8
    assert max_active_clusters(load_profile("b300"), key) == clusters


@pytest.mark.parametrize(("size", "clusters"), [(1, 376), (2, 188), (4, 94), (8, 46)])
def test_the_formula_reproduces_what_is_published_for_two_ctas_per_sm_of_an_rtx_pro_6000(size, clusters):
    assert max_active_clusters(load_profile("rtx_pro_6000"), Key(size, smem_bytes=48 * KIB)) == clusters


@pytest.mark.parametrize(
    ("size", "clusters"), [(1, 170), (2, 85), (3, 52), (4, 41), (7, 22), (8, 19), (9, 11), (16, 8)]
)
def test_the_formula_reproduces_what_is_published_for_an_rtx_5090(size, clusters):
    card = replace(load_profile("rtx_pro_6000"), sms=170, sm_groups=(16,) * 8 + (14,) * 3, max_cluster_size=16)
    assert max_active_clusters(card, Key(size, smem_bytes=90 * KIB)) == clusters


def test_a_cluster_above_the_limit_or_a_block_that_does_not_fit_has_no_place():
    h200, card = load_profile("h200"), load_profile("rtx_pro_6000")
    assert max_active_clusters(h200, Key(17)) == 0
    assert max_active_clusters(card, Key(9, smem_bytes=0)) == 0
    assert max_active_clusters(h200, Key(1, smem_bytes=h200.smem_per_block_bytes + 1)) == 0
    assert max_active_clusters(h200, Key(1, smem_bytes=h200.smem_per_block_bytes)) == 132
    assert max_active_clusters(h200, Key(0)) == 0


def test_a_gpu_without_clusters_counts_plain_blocks():
    old = replace(load_profile("h200"), max_cluster_size=1, max_portable_cluster_size=1)
    assert max_active_clusters(old, Key(1, smem_bytes=0)) == 132 * 16
    assert clusters_by_group(old, 16, 1)[:2] == (18 * 16, 18 * 16)
    assert max_active_clusters(old, Key(2)) == 0


@pytest.mark.parametrize(
    ("threads", "registers", "smem_bytes", "expected"),
    [
        (128, 0, 0, 16),  # 2048 threads
        (32, 0, 0, 32),  # blocks
        (384, 168, 0, 1),  # 3 warps of 168 registers in each quarter of the file
        (256, 255, 0, 1),
        (128, 255, 0, 2),
        (128, 128, 0, 4),
        (128, 129, 0, 3),  # 129 registers take 17 units of 256 per warp
        (96, 255, 0, 2),  # a block of 3 warps takes a slot in all 4 quarters
        (1024, 64, 0, 1),
        (1024, 65, 0, 0),  # too many registers for even one block
        (1025, 0, 0, 0),
        (0, 0, 0, 0),
        (128, 256, 0, 0),
        (100, 0, 0, 16),  # a part of a warp takes a whole one
        (128, 0, 113 * KIB, 2),  # 114 KiB each
        (128, 0, 113 * KIB + 1, 1),
        (128, 0, 227 * KIB, 1),
    ],
)
def test_threads_registers_and_smem_limit_the_ctas_of_an_sm(threads, registers, smem_bytes, expected):
    assert ctas_per_sm(load_profile("h200"), threads, registers, smem_bytes) == expected


@pytest.mark.parametrize("name", ["h200", "b200"])
def test_a_carveout_of_nothing_keeps_one_small_block_per_sm(name):
    # Measured on an H200: a preferred carve-out of 0 turned 1056 clusters of 4 KiB into 132.
    profile = load_profile(name)
    assert smem_capacity(profile, 4 * KIB, 0) == 8 * KIB
    assert ctas_per_sm(profile, 128, 0, 4 * KIB, 0) == 1
    assert clusters_that_fit(profile, 1, 1) == profile.sms
    assert ctas_per_sm(profile, 128, 0, 4 * KIB, "max") == 16


@pytest.mark.parametrize(
    ("percent", "smem_bytes", "capacity_kib"),
    [(50, 0, 132), (100, 0, 228), (0, 99 * KIB, 100), (0, 0, 8), (43, 0, 100)],
)
def test_a_carveout_is_rounded_up_to_a_step_that_holds_one_block(percent, smem_bytes, capacity_kib):
    assert smem_capacity(load_profile("h200"), smem_bytes, percent) == capacity_kib * KIB


def test_the_default_carveout_counts_as_the_largest():
    h200 = load_profile("h200")
    assert smem_capacity(h200, 0, "default") == smem_capacity(h200, 0, "max") == h200.smem_per_sm_bytes


@pytest.mark.parametrize(
    ("size", "busy", "free"), [(1, 66, 66), (2, 0, 66), (2, 66, 30), (2, 132, 0), (16, 66, 0), (2, 999, 0)]
)
def test_busy_sms_leave_the_clusters_whose_sms_are_all_free(size, busy, free):
    assert free_clusters(load_profile("h200"), 1, size, busy) == free


# --- properties of the formula ------------------------------------------------------------------------------------

profiles = st.sampled_from(profile_names()).map(load_profile)
ctas = st.integers(0, 32)


@given(profiles, ctas, st.integers(1, 16))
def test_clusters_never_take_more_ctas_than_the_sms_hold(profile, held, size):
    found = clusters_that_fit(profile, held, size)
    assert 0 <= found * size <= profile.sms * min(8, held)
    assert found == sum(clusters_by_group(profile, held, size))


@given(profiles, ctas, st.integers(1, 15))
def test_a_larger_cluster_never_fits_more_often(profile, held, size):
    assert clusters_that_fit(profile, held, size + 1) <= clusters_that_fit(profile, held, size)


@given(profiles, st.integers(0, 31), st.integers(1, 16))
def test_more_ctas_per_sm_never_fit_fewer_clusters(profile, held, size):
    assert clusters_that_fit(profile, held, size) <= clusters_that_fit(profile, held + 1, size)


@given(profiles, st.integers(1, 1024), st.integers(1, 255), st.integers(0, 227 * KIB))
def test_a_leaner_kernel_never_fits_fewer_times(profile, threads, registers, smem_bytes):
    found = ctas_per_sm(profile, threads, registers, smem_bytes)
    assert found <= ctas_per_sm(profile, threads, registers - 1, smem_bytes)
    assert found <= ctas_per_sm(profile, max(1, threads - 32), registers, smem_bytes)
    assert found <= ctas_per_sm(profile, threads, registers, smem_bytes // 2)


@given(profiles, st.integers(1, 1024), st.integers(1, 255), st.integers(0, 227 * KIB))
def test_what_is_said_to_fit_does(profile, threads, registers, smem_bytes):
    found = ctas_per_sm(profile, threads, registers, smem_bytes)
    assert found * threads <= profile.max_threads_per_sm
    assert found * threads * registers <= profile.registers_per_sm
    assert found * (smem_bytes + profile.smem_reserved_bytes) <= profile.smem_per_sm_bytes
    assert found <= profile.max_blocks_per_sm


@given(profiles, st.integers(0, 8), st.integers(1, 16), st.integers(0, 200))
def test_busy_sms_never_leave_more_clusters_than_an_idle_gpu_has_or_their_sms_allow(profile, held, size, busy):
    found = free_clusters(profile, held, size, busy)
    assert found <= clusters_that_fit(profile, held, size)
    assert found * size <= max(0, profile.sms - busy) * held
