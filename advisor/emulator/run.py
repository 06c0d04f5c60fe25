"""Runs one kernel: PTX and a resolved launch in, buffers and findings out. Imports `machine` and `records`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.emulator.cluster_launch_control import RequestCounts
from advisor.emulator.counts import Counts
from advisor.emulator.launching import Left, numpy_type, prepare
from advisor.emulator.machine import Machine
from advisor.emulator.mma import Numerics
from advisor.emulator.policy import AsyncQueue, ClusterMix, RequestPolicy
from advisor.emulator.program import Program, load_program
from advisor.emulator.ptx.ir import Instruction
from advisor.emulator.report import Finding, Reporter
from advisor.emulator.targets import check_device, check_launch_target, default_profile
from advisor.emulator.world import LaunchShape, World
from advisor.errors import InputError
from advisor.machine.occupancy import MAX_REGISTERS_PER_THREAD
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import load_profile
from advisor.records.launch import ResolvedLaunch

Array = NDArray[Any]

_CLASSES = {
    "memory": "ld ldu st atom red prefetch prefetchu cvta isspacep mapa getctarank ldmatrix stmatrix",
    "asynchronous copy": "cp tensormap",
    "cluster launch control": "clusterlaunchcontrol",
    "tensor core": "mma wgmma tcgen05.mma",
    "tensor memory": "tcgen05.ld tcgen05.st tcgen05.cp tcgen05.shift tcgen05.alloc tcgen05.dealloc "
    "tcgen05.relinquish_alloc_permit",
    "synchronisation": "bar barrier mbarrier fence membar griddepcontrol nanosleep setmaxnreg tcgen05.commit "
    "tcgen05.fence tcgen05.wait",
    "warp": "shfl vote match redux elect activemask movmatrix",
    "control": "bra brx call ret exit trap",
}
_CLASS_OF = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes.split()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a kernel left behind. `buffers` maps each name to its bytes; `typed` gives them in their type."""

    buffers: Mapping[str, Array]
    launch: ResolvedLaunch
    warnings: tuple[Finding, ...]
    instructions: Mapping[str, int]  # warp instructions by opcode
    bytes_moved: Mapping[str, int]  # by path
    clusters: int
    phases: Mapping[str, int]  # completed phases by kind of barrier
    left: Mapping[str, Left]  # buffers and scratch, for a kernel that comes after this one
    writes: Mapping[str, Array]  # how often each byte was written, of the buffers that were to be counted
    stored_bytes: tuple[int, ...]  # to global memory by each cluster, in the order of their start
    counts: Counts  # what a plan makes promises about
    multiply_adds: Mapping[str, int]  # of tcgen05, by kind and cta_group
    blocks: tuple[int, ...]  # how often warps ran each basic block of the program
    requests: RequestCounts | None = None  # of Cluster Launch Control; None where the kernel made none

    @property
    def warp_instructions(self) -> int:
        return sum(self.instructions.values())

    @property
    def instructions_by_class(self) -> dict[str, int]:
        """Warp instructions by what they occupy; arithmetic is whatever is nothing else."""
        found: Counter[str] = Counter()
        for opcode, count in self.instructions.items():
            found[_CLASS_OF.get(opcode, "arithmetic")] += count
        return dict(found.most_common())

    def typed(self, name: str) -> Array:
        """A buffer in the type and the shape of the launch."""
        buffer = self.launch.buffers[name]
        return self.buffers[name].view(numpy_type(buffer.dtype)).reshape(buffer.shape)


def run(
    ptx: str | Program,
    launch: ResolvedLaunch,
    *,
    inputs: Mapping[str, Array] | None = None,
    after: Outcome | None = None,
    count_writes: Collection[str] = (),
    seed: int = 0,
    async_policy: str = "random",
    clc: str = "grant",
    cluster_mix: str = "fill",
    numerics: Numerics = "fp32",
    profile: DeviceProfile | str | None = None,
    busy_sms: int = 0,
    predecessor_writes: Collection[str] | None = None,
    registers: int | None = None,
    races: bool = True,
    step_limit: int = 50_000_000,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Executes the launch's entry.

    `inputs` are the first bytes of buffers, by name. `after` is the outcome of a kernel that ran before on the same
    stream: buffers and scratch of the same name go on from there. `count_writes` names buffers whose writes are
    counted, byte by byte. `clc` says which requests of Cluster Launch Control are granted (`policy.RequestPolicy`);
    `cluster_mix` says which clusters a launch with a preferred size starts (`policy.ClusterMix`);
    `busy_sms` SMs are other work's from the start. `numerics` is how tensor cores add: "fp32", or "model" as the chip
    does. `predecessor_writes` names buffers and scratch that the kernel before this one on the stream writes until it
    ends, which is late (`dependent_launch`); without it, those that the launch names. `profile` is the device, by
    default one that the PTX's target names. `registers` per thread decide residency; without it, what the kernel's own
    launch bounds leave. `races` False leaves the happens-before checks out. `progress` is told now and then how many
    clusters are over, of how many.

    Raises KernelFault with one finding where the kernel does what PTX leaves undefined or cannot go on, InputError
    where the PTX, the launch or the inputs do not fit together, RefusedError EMU_UNKNOWN_OPCODE.
    """
    program = ptx if isinstance(ptx, Program) else load_program(ptx, launch.entry)
    target = program.module.target
    check_launch_target(target, launch.target)
    profile = profile or default_profile(target)
    device = load_profile(profile) if isinstance(profile, str) else profile
    check_device(target, device)
    _check_block(program, launch)
    reporter = Reporter()
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shape = LaunchShape(
        grid=launch.grid_blocks,
        block=launch.block,
        cluster=launch.cluster,
        registers=registers if registers is not None else _registers(program, threads, device),
        smem_bytes=program.static_bytes + launch.dynamic_smem_bytes,
        nonportable=launch.nonportable,
        preferred=launch.attributes.preferred_cluster,
    )
    with np.errstate(all="ignore"):
        prepared = prepare(program, launch, inputs, after.left if after is not None else None)
        if count_writes:
            prepared.memory.bytes.count_writes()
        late = prepared.named(launch.predecessor_writes if predecessor_writes is None else predecessor_writes)
        world = World(device, shape, busy_sms, reporter, ClusterMix(cluster_mix, seed))
        machine = Machine(
            program,
            world,
            prepared.memory,
            prepared.addresses,
            prepared.parameters,
            launch.dynamic_smem_bytes,
            queue=AsyncQueue(async_policy, seed),
            requests=RequestPolicy(clc, seed),
            seed=seed,
            races=races,
            numerics=numerics,
            step_limit=step_limit,
            progress=progress,
            late=late,
        )
        machine.scheduler.run()
        machine.finish()
    left = prepared.left()
    counted = {name: prepared.buffers[name] for name in count_writes}
    return Outcome(
        buffers={name: left[name].content for name in prepared.buffers},
        launch=launch,
        warnings=tuple(reporter.warnings.values()),
        instructions=_counted(program, machine.scheduler.counts),
        bytes_moved=dict(machine.bytes_moved),
        multiply_adds=dict(machine.multiply_adds),
        clusters=world.started,
        phases=dict(machine.phases),
        left=left,
        writes={name: prepared.memory.bytes.writes(each.start, each.bytes) for name, each in counted.items()},
        stored_bytes=tuple(machine.stored_by[serial] for serial in range(world.started)),
        requests=machine.clc.counts(machine.at_launch),
        counts=_named(machine.counts, program, launch),
        blocks=tuple(int(each) for each in machine.scheduler.counts),
    )


def _named(counts: Counts, program: Program, launch: ResolvedLaunch) -> Counts:
    """Loads by the launch's names of the tensor maps."""
    names = {each.name: param.name for each, param in zip(program.function.params, launch.params, strict=True)}
    counts.loads = {names.get(name, name): each for name, each in counts.loads.items()}
    return counts


def _registers(program: Program, threads: int, device: DeviceProfile) -> int:
    """What `.maxntid` and `.minnctapersm` leave each thread, in units of 8."""
    if "maxnreg" in program.function.directives:
        return min(MAX_REGISTERS_PER_THREAD, program.function.directives["maxnreg"][0])
    ctas = program.function.directives.get("minnctapersm", (1,))[0]
    share = device.registers_per_sm // (max(1, ctas) * -(-threads // 128) * 128)
    return max(16, min(MAX_REGISTERS_PER_THREAD, share) // 8 * 8)


def _check_block(program: Program, launch: ResolvedLaunch) -> None:
    """What the entry's directives say of the launch."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    for name, exact in (("reqntid", True), ("maxntid", False)):
        sizes = program.function.directives.get(name)
        if not sizes:
            continue
        wanted = int(np.prod(sizes))
        if (threads != wanted) if exact else (threads > wanted):
            raise InputError(
                "EMU_LAUNCH_REFUSED",
                f"a block of {threads} threads, where the kernel's .{name} is {wanted}",
                fix="launch the block that the kernel was compiled for",
                numbers={"threads": threads, name: wanted},
            )
    sizes = program.function.directives.get("reqnctapercluster")
    if sizes and tuple(sizes) + (1,) * (3 - len(sizes)) != launch.cluster:
        raise InputError(
            "EMU_LAUNCH_REFUSED",
            f"a cluster of {launch.cluster}, where the kernel's .reqnctapercluster is {sizes}",
            fix="launch the cluster that the kernel was compiled for",
            numbers={"cluster": list(launch.cluster), "required": list(sizes)},
        )


def _counted(program: Program, blocks: list[int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for block, times in zip(program.graph.blocks, blocks, strict=True):
        if not times:
            continue
        for instruction in program.instructions[block.start : block.end]:
            counts[_opcode(instruction)] += times
        if block.terminator is not None:
            counts[_opcode(block.terminator)] += times
    return dict(counts)


def _opcode(instruction: Instruction) -> str:
    """What an instruction counts as: tcgen05 is a family of opcodes."""
    if instruction.opcode != "tcgen05":
        return instruction.opcode
    return f"tcgen05.{instruction.qualifiers[0].split('::')[0]}"
