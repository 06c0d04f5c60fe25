"""The device profile: what the planner knows of a GPU. Read from TOML, each number with its source.

A profile ships as `machine/profiles/<name>.toml`, or is written by `advisor probe`. Sizes are bytes, rates are
per second unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EvidenceKind = Literal["user", "queried", "measured", "derived", "published", "assumed"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: the kind of evidence, and the words that let a reader check it."""

    kind: EvidenceKind
    text: str


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One GPU as the planner sees it. `sources` maps each field (or `table.key`) to its Source."""

    name: str  # the short name that `--target` takes: b200
    title: str  # the full name for reports: NVIDIA B200
    arch: str  # the exact target of its own kernels: sm_100a
    compute_capability: tuple[int, int]
    sms: int
    sm_groups: tuple[int, ...]  # SMs that can share a cluster, one entry per scheduling group, largest first
    smem_per_sm_bytes: int
    smem_per_block_bytes: int  # opt-in limit of static plus dynamic
    smem_reserved_bytes: int  # taken by the system from every resident block
    registers_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    max_cluster_size: int  # with the non-portable attribute; 1 where there are no clusters
    max_portable_cluster_size: int
    tmem_columns: int  # 0 where there is no tensor memory
    l2_bytes: int
    dram_bytes_per_s: float  # achievable copy bandwidth, read plus write
    l2_bytes_per_clk_per_sm: float  # sustained L2 to SM, per SM
    smem_bytes_per_clk: float  # per SM
    clock_hz: float  # sustained under tensor load
    max_clock_hz: float
    tensor_flop_per_clk_per_sm: Mapping[str, float]  # dense, by operand type: bf16, fp16, tf32, fp8
    mma_sync_flop_per_clk_per_sm: Mapping[str, float]  # the same through mma.sync, where it differs
    launch_us: float  # one launch, start to start of work, warm
    cluster_barrier_cycles: float
    dsmem_bytes_per_clk_per_sm: float  # remote store bandwidth of one SM
    clc_round_trip_cycles: float  # 0 where there is no CLC
    atomic_round_trip_cycles: float  # one global atomic, warm: a ticket claim
    sources: Mapping[str, Source] = field(default_factory=dict)

    @property
    def has_clusters(self) -> bool:
        return self.max_cluster_size > 1

    @property
    def cc_text(self) -> str:
        return f"{self.compute_capability[0]}.{self.compute_capability[1]}"
