"""Reads a live GPU into a DeviceProfile: limits, residency of clusters, which SMs share one, bandwidths, rates, costs.

Imports `machine`, `records`, `errors` and the runtime's own device. The kernels lie in `templates/probe/`; whoever
calls compiles what `probe_units` names and passes the images, because the runtime knows no compiler.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import DeviceError, ToolError
from advisor.machine.features import Feature, loadable, supports, targets
from advisor.machine.profile import DeviceProfile, Source
from advisor.records.launch import Param, PtrParam, ResolvedLaunch, ScalarParam
from advisor.runtime.device import Buffer, Device, LoadedKernel, slug, with_queried_limits

Triple = tuple[int, int, int]
Progress = Callable[[str], None]

CLUSTER_SIZES = tuple(range(1, 17))
_MMA_FLOPS = {"bf16": 16 * 8 * 16 * 2, "fp16": 16 * 8 * 16 * 2, "tf32": 16 * 8 * 8 * 2, "fp8": 16 * 8 * 32 * 2}
_WGMMA_FLOPS = {"bf16": 4 * 16, "fp16": 4 * 16, "tf32": 4 * 8, "fp8": 4 * 32}  # K of one round: four instructions
_WGMMA_SMEM = (128 + 256) * 128  # bytes of A and B in templates/probe/wgmma.cu
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class ProbeUnit:
    """One translation unit of the probe: where its source lies under `templates/`, and what to compile it for."""

    name: str
    template: str
    target: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The profile, and everything that was read and measured."""

    profile: DeviceProfile
    document: dict[str, Any]


def probe_units(compute_capability: tuple[int, int]) -> list[ProbeUnit]:
    """What to compile for a GPU of this compute capability. Raises DeviceError UNKNOWN_CHIP."""
    target = own_target(compute_capability)
    units = [ProbeUnit("common", "probe/common.cu", target)]
    if supports(Feature.CLUSTER, target):
        units.append(ProbeUnit("cluster", "probe/cluster.cu", target))
    if supports(Feature.WGMMA, target):
        units.append(ProbeUnit("wgmma", "probe/wgmma.cu", target))
    return units


def own_target(compute_capability: tuple[int, int]) -> str:
    """The target with every feature of a chip: sm_90a for 9.0. Raises DeviceError UNKNOWN_CHIP."""
    major, minor = compute_capability
    for suffix in ("a", ""):
        target = f"sm_{major}{minor}{suffix}"
        if target in targets() and loadable(target, compute_capability):
            return target
    raise DeviceError(
        "UNKNOWN_CHIP",
        f"no target of the compiler is known for compute capability {major}.{minor}",
        fix="update cluster-advisor",
        numbers={"compute_capability": [major, minor]},
    )


def probe(
    device: Device,
    images: Mapping[str, bytes],
    *,
    base: DeviceProfile | None = None,
    progress: Progress | None = None,
) -> ProbeResult:
    """Measures `device` with the compiled `images` (by ProbeUnit name) and returns its profile. About 20 seconds.

    `base` supplies what no probe kernel reaches (tensor rates of tcgen05, the CLC round trip); what is taken from it
    is marked. Default: the shipped profile of the chip, or the nearest of its compute capability.
    """
    return _Probe(device, images, progress or (lambda _: None)).run(
        with_queried_limits(base, device.info) if base else device.profile()
    )


class _Probe:
    def __init__(self, device: Device, images: Mapping[str, bytes], progress: Progress) -> None:
        self.device = device
        self.images = images
        self.progress = progress
        self.sms = device.info.sms
        self.word = device.allocate(256)
        self.cycles = device.allocate(8 * 4 * self.sms)  # one count per CTA; no kernel here has more than 2 per SM
        self.measured: dict[str, Any] = {}
        self.sources: dict[str, Source] = {}
        self.document: dict[str, Any] = {}

    # ---- the pieces in order ------------------------------------------------------------------------------------

    def run(self, base: DeviceProfile) -> ProbeResult:
        info = self.device.info
        self.document["device"] = {
            "name": info.name,
            "compute_capability": list(info.compute_capability),
            "uuid_hash": info.uuid_hash,
            "driver": info.driver,
            "cuda": info.cuda,
            "limits": dict(info.limits),
            "memory_bytes": info.memory_bytes,
        }
        self._keep("max_clock_hz", info.limits["clock_khz"] * 1000.0, "queried", "CU_DEVICE_ATTRIBUTE_CLOCK_RATE")
        if "cluster" in self.images:
            self._residency()
            self._groups()
            self._cluster_costs()
        else:
            self._keep("max_cluster_size", 1, "queried", "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH is 0")
            self._keep("sm_groups", tuple([2] * (self.sms // 2) + [1] * (self.sms % 2)), "assumed", "no clusters here")
        self._copies()
        self._l2()
        self._atomic()
        self._launch_cost()
        self._tensor_rates(base)
        profile = replace(
            base,
            name=f"{slug(info.name)}_probed",
            title=info.name,
            arch=own_target(info.compute_capability),
            compute_capability=info.compute_capability,
            **self.measured,
            sources={**self._taken_over(base), **self.sources},
        )
        if profile.clock_hz > profile.max_clock_hz:
            profile = replace(profile, clock_hz=profile.max_clock_hz)
        self.device.free(self.word)
        self.device.free(self.cycles)
        return ProbeResult(profile, self.document)

    def _keep(self, field: str, value: Any, kind: Any, text: str) -> None:
        self.measured[field] = value
        self.sources[field] = Source(kind, f"{text}; {self.device.info.name}, driver {self.device.info.driver}")

    def _taken_over(self, base: DeviceProfile) -> dict[str, Source]:
        return {
            name: source if source.kind == "queried" else Source(source.kind, f"profile {base.name}: {source.text}")
            for name, source in base.sources.items()
        }

    def _residency(self) -> None:
        self.progress("how many clusters fit, sizes 1 to 16")
        kernel = self._kernel("cluster", "probe_place")
        most = self._most_smem(kernel)
        rows = []
        for smem in (0, most // 4, most // 2 - 1024, most):
            for threads in (128, 384):
                for size in CLUSTER_SIZES:
                    try:
                        count = self.device.max_active_clusters(
                            kernel, block=(threads, 1, 1), cluster=(size, 1, 1), dynamic_smem_bytes=smem
                        )
                    except DeviceError as error:
                        if error.code != "CLUSTER_SIZE_REFUSED":
                            raise
                        count = 0
                    rows.append(
                        {"dynamic_smem_bytes": smem, "threads": threads, "cluster_size": size, "clusters": count}
                    )
        largest = max((row["cluster_size"] for row in rows if row["clusters"] > 0), default=1)
        self.document["max_active_clusters"] = rows
        self._keep("max_cluster_size", largest, "queried", "the largest size with a cuOccupancyMaxActiveClusters > 0")

    def _groups(self) -> None:
        """SMs that ever ran CTAs of one cluster belong to one group: launch sizes until the groups stop growing."""
        self.progress("which SMs share a cluster")
        most = self._most_smem(self._kernel("cluster", "probe_place"))
        groups = Groups()
        unchanged, rounds = 0, 0
        while unchanged < 3 and rounds < 40:
            before = groups.partition()
            for size in range(2, self.measured["max_cluster_size"] + 1):
                for cluster in self._placed(size, most):
                    groups.join(cluster)
            rounds += 1
            unchanged = unchanged + 1 if groups.partition() == before else 0
        alone = self.sms - groups.members()
        sizes = tuple(sorted([*(len(each) for each in groups.partition()), *[1] * alone], reverse=True))
        self.document["sm_groups"] = {"sizes": list(sizes), "rounds": rounds, "members": groups.partition()}
        text = f"%smid of clusters of 2 to {self.measured['max_cluster_size']} CTAs, {rounds} rounds"
        self._keep("sm_groups", sizes, "measured", text)

    def _most_smem(self, kernel: LoadedKernel) -> int:
        """Dynamic shared memory with which no second CTA fits on an SM."""
        return self.device.info.limits["smem_per_block_bytes"] - kernel.static_smem_bytes

    def _placed(self, size: int, smem: int) -> list[list[int]]:
        """SM ids of each cluster of one launch that fills the device, one CTA per SM."""
        kernel = self._kernel("cluster", "probe_place")
        blocks = 2 * self.sms // size * size
        ids = self.device.allocate(4 * blocks)
        self._launch(
            kernel,
            blocks,
            32,
            [_pointer("ids"), _number("u64", 20_000)],
            {"ids": ids},
            cluster=(size, 1, 1),
            smem=smem,
        )(self.device.stream)
        rows = self.device.download(ids).view(np.uint32).reshape(-1, size)
        self.device.free(ids)
        return [[int(each) for each in row] for row in rows]

    def _cluster_costs(self) -> None:
        self.progress("cluster barrier and distributed shared memory")
        kernel = self._kernel("cluster", "probe_cluster_barrier")
        repeats = 1000
        rows = []
        for size in (2, 4, 8, 16):
            if size <= self.measured["max_cluster_size"]:
                cycles = self._cycles(kernel, size, 384, repeats, cluster=(size, 1, 1), sink_last=False) / repeats
                rows.append({"cluster_size": size, "cycles": cycles})
        self.document["cluster_barrier"] = rows
        self._keep(
            "cluster_barrier_cycles",
            rows[0]["cycles"],
            "measured",
            "1000 barriers of a cluster of 2, 384 threads a CTA",
        )
        kernel = self._kernel("cluster", "probe_dsmem_store")
        blocks = self.sms // 2 * 2
        cycles = self._cycles(kernel, blocks, 1024, repeats, cluster=(2, 1, 1), smem=65536, sink_last=False)
        rate = repeats * 8 * 1024 * 8 / cycles
        self.document["dsmem_store_bytes_per_clk_per_sm"] = rate
        text = "8-byte stores of a cluster of 2, both ways, all SMs"
        self._keep("dsmem_bytes_per_clk_per_sm", rate, "measured", text)

    def _copies(self) -> None:
        self.progress("copy bandwidth")
        kernel = self._kernel("common", "probe_copy")
        limit = self.device.info.memory_bytes // 4
        rows = []
        for size in (8 * _MIB, 32 * _MIB, 128 * _MIB, 512 * _MIB, 2048 * _MIB):
            if size > limit:
                continue
            source, target = self.device.allocate(size), self.device.allocate(size)
            self.device.fill(source, 1)
            launch = self._launch(
                kernel,
                self.sms * 4,
                512,
                [_pointer("source"), _pointer("target"), _number("u64", size // 16)],
                {"source": source, "target": target},
            )
            times = self.device.time_interleaved_us([launch], samples=15)[0]
            self.device.free(source)
            self.device.free(target)
            rows.append(
                {
                    "bytes": size,
                    "median_us": statistics.median(times),
                    "bytes_per_s": 2 * size / statistics.median(times) * 1e6,
                }
            )
        self.document["copy"] = rows
        text = f"copy of {rows[-1]['bytes'] // _MIB} MiB, read plus write, median of 15"
        self._keep("dram_bytes_per_s", rows[-1]["bytes_per_s"], "measured", text)

    def _l2(self) -> None:
        self.progress("L2 to SM")
        kernel = self._kernel("common", "probe_read")
        size = min(self.device.info.limits["l2_bytes"] // 4, 16 * _MIB) // 16 * 16
        source = self.device.allocate(size)
        self.device.fill(source, 1)
        repeats = 3
        cycles = self._cycles(
            kernel, 2 * self.sms, 1024, repeats, before=[_pointer("source"), _number("u32", size // 16)], source=source
        )
        self.device.free(source)
        rate = 2 * repeats * size / cycles
        self.document["l2_bytes_per_clk_per_sm"] = rate
        text = f"every SM reads the same {size // _MIB} MiB past L1"
        self._keep("l2_bytes_per_clk_per_sm", rate, "measured", text)

    def _atomic(self) -> None:
        kernel = self._kernel("common", "probe_atomic")
        self.device.fill(self.word, 0)
        repeats = 1000
        cycles = self._cycles(kernel, 1, 1, repeats, before=[_pointer("sink")], sink_last=False) / repeats
        self.document["atomic_round_trip_cycles"] = cycles
        self._keep("atomic_round_trip_cycles", cycles, "measured", "1000 dependent atomicAdd of one thread")

    def _launch_cost(self) -> None:
        self.progress("launch cost")
        kernel = self._kernel("common", "probe_empty")
        empty = self._launch(kernel, 1, 32, [], {})
        count = 200

        def many(stream: Any) -> None:
            for _ in range(count):
                empty(stream)

        graph = self.device.capture(many)
        times = self.device.time_interleaved_us([graph.launch, many], samples=15)
        graph.close()
        in_graph, on_stream = (statistics.median(each) / count for each in times)
        self.document["launch_us"] = {"graph": in_graph, "stream": on_stream}
        self._keep("launch_us", in_graph, "measured", f"{count} empty kernels in a graph, start to start")

    def _tensor_rates(self, base: DeviceProfile) -> None:
        self.progress("tensor rates")
        kinds = [each for each in _MMA_FLOPS if each != "fp8" or self.device.info.compute_capability >= (8, 9)]
        repeats = 20_000
        sync_rates = {}
        for kind in kinds:
            kernel = self._kernel("common", f"probe_mma_{kind}")
            cycles = self._cycles(kernel, self.sms, 512, repeats)
            sync_rates[kind] = 16 * 8 * repeats * _MMA_FLOPS[kind] / cycles
        self.document["mma_sync_flop_per_clk_per_sm"] = sync_rates
        text = "16 warps an SM, 8 independent products each, by clock64"
        self._keep("mma_sync_flop_per_clk_per_sm", sync_rates, "measured", text)
        if "wgmma" in self.images:
            self._wgmma_rates()
            return
        native = own_target(self.device.info.compute_capability)
        clock = self._clock(self._kernel("common", "probe_mma_bf16"), 512, 100 * repeats, 0)
        if supports(Feature.TCGEN05, native):
            # No probe kernel issues tcgen05: the rates stay those of the base profile, with its sources.
            self._keep("clock_hz", clock, "measured", "clock64 over time under mma.sync; tcgen05 draws more power")
            return
        self._keep("tensor_flop_per_clk_per_sm", sync_rates, "measured", text)
        self._keep("clock_hz", clock, "measured", "clock64 over time under mma.sync")

    def _wgmma_rates(self) -> None:
        rates = {}
        repeats = 20_000
        for kind, depth in _WGMMA_FLOPS.items():
            kernel = self._kernel("wgmma", f"probe_wgmma_{kind}")
            cycles = self._cycles(kernel, self.sms, 256, repeats, smem=_WGMMA_SMEM)
            rates[kind] = 2 * 128 * 256 * depth * repeats / cycles
        self.document["tensor_flop_per_clk_per_sm"] = rates
        text = "two warpgroups, m64n256 each, operands in shared memory, by clock64"
        self._keep("tensor_flop_per_clk_per_sm", rates, "measured", text)
        clock = self._clock(self._kernel("wgmma", "probe_wgmma_bf16"), 256, 40 * repeats, _WGMMA_SMEM)
        self._keep("clock_hz", clock, "measured", "clock64 over time under bf16 wgmma on random operands")

    def _clock(self, kernel: LoadedKernel, threads: int, repeats: int, smem: int) -> float:
        """Ticks per second of the SMs while `kernel` runs for a good part of a second."""
        launch = self._launch(kernel, self.sms, threads, *self._counting(repeats), smem=smem)
        self.device.time_us(launch)
        rates = []
        for _ in range(3):
            time_us = self.device.time_us(launch)
            rates.append(float(np.median(self._ticks(self.sms))) / time_us * 1e6)
        self.document["clock_under_load_hz"] = rates
        return statistics.median(rates)

    # ---- one launch ---------------------------------------------------------------------------------------------

    def _kernel(self, image: str, entry: str) -> LoadedKernel:
        if image not in self.images:
            raise ToolError(
                "PROBE_IMAGE_MISSING",
                f"the probe needs the image {image!r}",
                fix="compile every unit that probe_units names",
                numbers={"image": image, "given": sorted(self.images)},
            )
        return self.device.load(self.images[image], entry)

    def _launch(
        self,
        kernel: LoadedKernel,
        blocks: int,
        threads: int,
        params: list[Param],
        buffers: Mapping[str, Buffer],
        *,
        cluster: Triple = (1, 1, 1),
        smem: int = 0,
    ) -> Callable[[Any], None]:
        resolved = ResolvedLaunch(
            entry=kernel.entry,
            target="",
            grid_blocks=(blocks, 1, 1),
            block=(threads, 1, 1),
            cluster=cluster,
            nonportable=cluster[0] > 8,
            dynamic_smem_bytes=smem,
            params=params,
            buffers={},
        )
        pointers = {name: buffer.address for name, buffer in buffers.items()}
        return self.device.prepare(kernel, resolved, pointers, self.device.scratch())

    def _counting(
        self,
        repeats: int,
        before: Iterable[Param] = (),
        source: Buffer | None = None,
        sink_last: bool = True,
    ) -> tuple[list[Param], dict[str, Buffer]]:
        """Parameters of a kernel that counts cycles: (..., repeats, cycles[, sink])."""
        last = [_pointer("sink")] if sink_last else []
        params = [*before, _number("u32", repeats), _pointer("cycles"), *last]
        buffers = {"cycles": self.cycles, "sink": self.word}
        return params, buffers if source is None else {**buffers, "source": source}

    def _cycles(
        self,
        kernel: LoadedKernel,
        blocks: int,
        threads: int,
        repeats: int,
        *,
        cluster: Triple = (1, 1, 1),
        smem: int = 0,
        before: Iterable[Param] = (),
        source: Buffer | None = None,
        sink_last: bool = True,
    ) -> float:
        """The median over CTAs of the ticks that one counts, in the second of two launches."""
        params, buffers = self._counting(repeats, before, source, sink_last)
        launch = self._launch(kernel, blocks, threads, params, buffers, cluster=cluster, smem=smem)
        launch(self.device.stream)
        launch(self.device.stream)
        return float(np.median(self._ticks(blocks)))

    def _ticks(self, blocks: int) -> NDArray[np.uint64]:
        return self.device.download(self.cycles, size=8 * blocks).view(np.uint64)


class Groups:
    """A partition that grows by joining what was seen together."""

    def __init__(self) -> None:
        self._group_of: dict[int, set[int]] = {}

    def join(self, together: Iterable[int]) -> None:
        merged: set[int] = set()
        for each in together:
            merged |= self._group_of.get(each, {each})
        for each in merged:
            self._group_of[each] = merged

    def members(self) -> int:
        return len(self._group_of)

    def partition(self) -> list[list[int]]:
        """The groups, each sorted, the largest first."""
        distinct = {id(group): sorted(group) for group in self._group_of.values()}
        return sorted(distinct.values(), key=lambda group: (-len(group), group))


def _pointer(name: str) -> PtrParam:
    return PtrParam(name=name, buffer=name, offset_bytes=0)


def _number(kind: Any, value: int) -> ScalarParam:
    return ScalarParam(kind=kind, name=kind, value=value)
