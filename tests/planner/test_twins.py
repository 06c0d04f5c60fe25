"""Which kernels stand beside the chosen one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.kinds.gemm.work import GemmWork
from advisor.records.candidate import Candidate
from advisor.records.twins import halved, other_schedules, single_cta, smaller_clusters, twins


def _candidate(cluster: tuple[int, int, int], schedule: str = "static", **work: object) -> Candidate:
    x, y, z = cluster
    fields = {"multicast_a": y, "multicast_b": x, "split_k": z, **work}
    return Candidate("sm90", cluster, schedule, (128, 128, 64), 4, 384, GemmWork(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "sizes"),
    [((1, 1, 1), []), ((2, 1, 1), []), ((4, 1, 1), [2]), ((2, 2, 1), [2]), ((4, 4, 1), [8, 4, 2]), ((1, 1, 8), [4, 2])],
)
def test_a_large_cluster_steps_down_by_halves_to_two(cluster: tuple[int, int, int], sizes: list[int]) -> None:
    assert [each.cluster_size for each in smaller_clusters(_candidate(cluster))] == sizes


def test_multicast_and_slices_follow_the_cluster() -> None:
    for c in smaller_clusters(_candidate((4, 2, 2))):
        assert (c.work.multicast_b, c.work.multicast_a) == c.cluster[:2]
        assert c.work.split_k == c.cluster[2]


def test_a_pair_keeps_its_two_ctas_along_x() -> None:
    pair = _candidate((2, 4, 1), mma_ctas=2)
    assert [each.cluster for each in smaller_clusters(pair)] == [(2, 2, 1), (2, 1, 1)]


def test_slices_over_scratch_stay_when_the_cluster_shrinks() -> None:
    scratch = _candidate((4, 1, 1), split_k=4)
    assert halved(scratch).work.split_k == 4
    assert single_cta(scratch).work.split_k == 4
    assert single_cta(_candidate((1, 1, 4))).work.split_k == 1


def test_a_single_cta_shares_nothing() -> None:
    single = single_cta(_candidate((2, 2, 1), mma_ctas=2))
    assert single.cluster == (1, 1, 1)
    assert (single.work.mma_ctas, single.work.multicast_a, single.work.multicast_b) == (1, 1, 1)


def test_the_ladder_of_a_dynamic_kernel_is_static_smaller_clusters_and_one_tile() -> None:
    found = twins(_candidate((4, 1, 1), "ticket"))
    assert [(each.role, each.candidate.schedule, each.candidate.cluster) for each in found] == [
        ("chosen", "ticket", (4, 1, 1)),
        ("static_twin", "static", (4, 1, 1)),
        ("smaller_cluster", "ticket", (2, 1, 1)),
        ("one_tile_twin", "one_tile", (1, 1, 1)),
    ]


def test_a_mix_of_two_sizes_falls_to_the_smaller_one_alone() -> None:
    work = GemmWork(2, 2, 8, preferred_cluster=(8, 2, 1))
    mix = Candidate("sm100", (4, 2, 1), "one_tile", (128, 256, 64), 4, 256, work)
    found = twins(mix)
    assert [(each.role, each.candidate.cluster, each.candidate.work.preferred_cluster) for each in found] == [
        ("chosen", (4, 2, 1), (8, 2, 1)),
        ("static_twin", (4, 2, 1), (8, 2, 1)),
        ("smaller_cluster", (4, 2, 1), None),
        ("smaller_cluster", (2, 2, 1), None),
        ("smaller_cluster", (2, 1, 1), None),
        ("one_tile_twin", (1, 1, 1), None),
    ]


def test_no_kernel_is_built_twice() -> None:
    assert [each.role for each in twins(_candidate((1, 1, 1), "one_tile"))] == ["chosen", "static_twin"]
    assert [each.role for each in twins(_candidate((1, 1, 1), "static"))] == ["chosen", "one_tile_twin"]


def test_portable_has_no_twin() -> None:
    portable = replace(_candidate((1, 1, 1), "one_tile"), family="portable")
    assert [each.role for each in twins(portable)] == ["portable"]


def test_twins_share_tile_stages_and_threads() -> None:
    chosen = _candidate((4, 4, 1), "ticket")
    for twin in twins(chosen):
        c = twin.candidate
        assert (c.tile, c.stages, c.threads, c.family) == (chosen.tile, chosen.stages, chosen.threads, chosen.family)


def test_other_schedules_leave_the_chosen_one_out() -> None:
    assert [each.schedule for each in other_schedules(_candidate((1, 1, 1)))] == ["one_tile", "ticket", "clc"]
