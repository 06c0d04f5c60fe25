"""What the `.target` of a PTX module allows, and on which device it runs. Imports `machine`, `errors` and its own room.

ptxas refuses an instruction that the target lacks; PTX that no ptxas has seen is held to the same table here.
"""

from __future__ import annotations

from advisor.emulator.ptx.ir import Instruction
from advisor.emulator.tensor_map import Swizzle, TensorMap
from advisor.errors import InputError, RefusedError
from advisor.machine.features import Feature, compute_capability, loadable, require
from advisor.machine.profile import DeviceProfile
from advisor.machine.profile_file import load_profile

DEFAULT_PROFILES = {"sm_100": "b200", "sm_103": "b300", "sm_120": "rtx_pro_6000"}
"""By architecture. PTX of an earlier or a plain target runs on a Hopper GPU as well as on any."""

_BY_OPCODE = {
    "wgmma": Feature.WGMMA,
    "tcgen05": Feature.TCGEN05,
    "setmaxnreg": Feature.SETMAXNREG,
    "griddepcontrol": Feature.GRIDDEPCONTROL,
    "elect": Feature.ELECT_SYNC,
    "mapa": Feature.CLUSTER,
    "getctarank": Feature.CLUSTER,
}
_FP8 = frozenset({"e4m3", "e5m2"})


def features_of(instruction: Instruction) -> list[Feature]:
    """The features that an instruction needs."""
    opcode, names = instruction.opcode, set(instruction.qualifiers)
    found = [_BY_OPCODE[opcode]] if opcode in _BY_OPCODE else []
    if opcode == "clusterlaunchcontrol":
        found.append(Feature.CLC_MULTICAST if "multicast::cluster::all" in names else Feature.CLC)
    elif opcode == "tcgen05":
        found += [Feature.TCGEN05_I8] if "kind::i8" in names else []
        found += [Feature.TCGEN05_LD_RED] if {"ld", "red"} <= names else []
    elif opcode == "cp" and "async" in names:
        found += _of_copy(names)
    elif opcode == "mma":
        found.append(Feature.MMA_SYNC_FP8 if _FP8 & names else Feature.MMA_SYNC)
        found += [Feature.MMA_SYNC_BLOCK_SCALE] if "block_scale" in names else []
    elif opcode in ("st", "red") and "async" in names:
        found.append(Feature.ST_ASYNC)
    elif opcode == "barrier" and "cluster" in names:
        found.append(Feature.CLUSTER)
    elif opcode == "fence" and any(each.startswith("sync_restrict") for each in names):
        found.append(Feature.SYNC_RESTRICT)
    return found


def _of_copy(names: set[str]) -> list[Feature]:
    if "bulk" not in names:
        return [Feature.CP_ASYNC]
    found = [Feature.TMA]
    if "multicast::cluster" in names:
        found.append(Feature.TMA_MULTICAST)
    if names & {"cta_group::1", "cta_group::2"}:
        found.append(Feature.TMA_CTA_GROUP)
    return found


def check_target(target: str, instructions: tuple[Instruction, ...]) -> None:
    """Raises RefusedError for the first instruction that the target does not have: ARCH_SUFFIX_REQUIRED, NO_CLC,
    NO_TCGEN05, NO_WGMMA, NO_CLUSTERS or FEATURE_MISSING; ProfileError UNKNOWN_TARGET."""
    compute_capability(target)
    fine: set[Feature] = set()
    for each in instructions:
        for feature in features_of(each):
            if feature in fine:
                continue
            try:
                require(feature, target)
            except RefusedError as error:
                raise RefusedError(
                    error.code,
                    f"line {each.line}: {each.text}: {error.message}",
                    fix=error.fix,
                    numbers={**error.numbers, "line": each.line},
                ) from None
            fine.add(feature)


def default_profile(target: str) -> str:
    """The name of the profile that a kernel runs on where none is asked for."""
    return DEFAULT_PROFILES.get(target.rstrip("af"), "h200")


def check_device(target: str, profile: DeviceProfile) -> None:
    """Raises InputError EMU_LAUNCH_REFUSED where code of this target does not run on the device: PTX of a plain target
    runs on every later GPU, that of an `a` or `f` target where its cubin does."""
    if not _runs(target, profile.compute_capability):
        shipped = default_profile(target)
        runs = _runs(target, load_profile(shipped).compute_capability)
        raise InputError(
            "EMU_LAUNCH_REFUSED",
            f"PTX for {target} does not run on {profile.name}, compute capability "
            + _dotted(profile.compute_capability),
            fix=f"--profile {shipped}, or none: the target then says which"
            if runs
            else f"pass --profile with a profile file of compute capability {_dotted(compute_capability(target))}: no "
            "shipped GPU runs it",
            numbers={"target": target, "profile": profile.name},
        )


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def check_launch_target(target: str, wanted: str) -> None:
    """Raises InputError EMU_LAUNCH_REFUSED where the launch is for a target that PTX of this one does not run on."""
    if target != wanted and not _runs(target, compute_capability(wanted)):
        raise InputError(
            "EMU_LAUNCH_REFUSED",
            f"the launch is for {wanted}, and the PTX is for {target}",
            fix="take the PTX that was compiled for the launch's target, or correct the launch",
            numbers={"target": target, "launch_target": wanted},
        )


def _runs(target: str, capability: tuple[int, int]) -> bool:
    if target[-1] in "af":
        return loadable(target, capability)
    return capability >= compute_capability(target)


def load_violations(target: str, tensor: TensorMap) -> list[str]:
    """What a load into shared memory through this map is not on the target: the sm_120 family takes no elements of less
    than a byte, and no swizzle of other atoms than 16 bytes (PTX ISA, cp.async.bulk.tensor)."""
    if compute_capability(target)[0] != 12:
        return []
    found = []
    if tensor.dtype.bits < 8:
        found.append(f"{target} loads no elements of {tensor.dtype.bits} bits")
    if tensor.swizzle in (Swizzle.B128_ATOM_32B, Swizzle.B128_ATOM_32B_FLIP_8B, Swizzle.B128_ATOM_64B):
        found.append(f"{target} has no swizzle {tensor.swizzle.name}")
    return found
