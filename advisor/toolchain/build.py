"""Compiles units, through the cache. Imports only its own room, `records` and `errors`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from advisor.errors import ToolError
from advisor.records.launch import Kernel
from advisor.records.plan import Finding
from advisor.toolchain.cache import SCHEMA, Cache, DamagedEntry, default_root
from advisor.toolchain.nvrtc import Image, compile_image, compiler_version
from advisor.toolchain.sass import sass_facts
from advisor.toolchain.unit import Compiled, EntryResources, Unit, cache_key, kernel_hash, sha256


def compile_cuda(unit: Unit, *, cache: Cache | None = None, use_cache: bool = True) -> Compiled:
    """PTX and cubin of one compilation of `unit`; from the cache where an equal unit was compiled before.

    The cache is `cache`, else the user's (`$ADVISOR_CACHE_DIR`). A cache that cannot be read or written, and an entry
    that was damaged, are findings of the result, never errors. Raises ToolError COMPILE_FAILED with the compiler's
    log, TARGET_UNKNOWN, NVRTC_MISSING, NVRTC_UNUSABLE.
    """
    if use_cache and cache is None:
        root = default_root()
        cache = Cache(root) if root is not None else None
    if cache is None or not use_cache:
        return _compiled(unit, compile_image(unit))
    key = cache_key(unit, compiler_version(), SCHEMA)
    findings: list[Finding] = []
    try:
        if (entry := cache.load(key)) is not None:
            return _from_entry(*entry)
    except DamagedEntry as damaged:
        findings.append(
            Finding(
                code="CACHE_ENTRY_DAMAGED",
                severity="info",
                message=f"a cached image did not match its hash and was built again: {damaged}",
            )
        )
    except OSError as error:
        return replace(_compiled(unit, compile_image(unit)), findings=(_unwritable(cache, error),))
    compiled = _compiled(unit, compile_image(unit))
    try:
        cache.store(key, _facts(compiled), compiled.ptx, compiled.cubin)
    except OSError as error:
        findings.append(_unwritable(cache, error))
    return replace(compiled, findings=tuple(findings))


def compile_many(
    units: Iterable[Unit], workers: int = 2, *, cache: Cache | None = None, use_cache: bool = True
) -> list[Compiled]:
    """`compile_cuda` of every unit, in their order, `workers` at a time.

    Threads: the compiler releases the interpreter and runs side by side in one process, and a worker process would
    pay for loading it again. Raises what the first failing unit raises; units that have not started are dropped.
    """
    rows: Sequence[Unit] = list(units)
    if len(rows) <= 1 or workers <= 1:
        return [compile_cuda(each, cache=cache, use_cache=use_cache) for each in rows]
    compiler_version()  # load the library once, before the threads
    with ThreadPoolExecutor(max_workers=min(workers, len(rows)), thread_name_prefix="compile") as pool:
        futures = [pool.submit(compile_cuda, each, cache=cache, use_cache=use_cache) for each in rows]
        try:
            return [each.result() for each in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def broken_promises(compiled: Compiled, kernel: Kernel) -> list[Finding]:
    """Where the image does not hold what launch.json says of it: registers at most, static SMEM exactly, no spill."""
    usage = compiled.entries.get(kernel.entry)
    place = f"{kernel.id} for {compiled.target}"
    if usage is None:
        there = ", ".join(compiled.entries) or "no entry"
        return [
            Finding(code="ENTRY_MISSING", severity="error", message=f"{place}: no {kernel.entry}; it has {there}"),
        ]
    findings = []
    if compiled.spill_bytes:
        findings.append(
            Finding(
                code="REGISTER_SPILL",
                severity="error",
                message=f"{place} spills {compiled.spill_bytes} bytes",
                numbers={"spill_bytes": compiled.spill_bytes, "registers": usage.registers},
            )
        )
    if usage.registers > kernel.registers:
        findings.append(
            Finding(
                code="REGISTERS_ABOVE_PLAN",
                severity="error",
                message=f"{place} needs {usage.registers} registers, planned are {kernel.registers}",
                numbers={"registers": usage.registers, "planned": kernel.registers},
            )
        )
    if usage.static_smem_bytes != kernel.static_smem_bytes:
        findings.append(
            Finding(
                code="STATIC_SMEM_DIFFERS",
                severity="error",
                message=f"{place} has {usage.static_smem_bytes} bytes of static shared memory, "
                f"planned are {kernel.static_smem_bytes}",
                numbers={"static_smem_bytes": usage.static_smem_bytes, "planned": kernel.static_smem_bytes},
            )
        )
    return findings


def _compiled(unit: Unit, image: Image) -> Compiled:
    return Compiled(
        ptx=image.ptx,
        cubin=image.cubin,
        registers=max((each.registers for each in image.entries.values()), default=0),
        static_smem_bytes=max((each.static_smem_bytes for each in image.entries.values()), default=0),
        spill_bytes=image.spill_bytes,
        stack_bytes=image.stack_bytes,
        log=image.log,
        ptx_sha256=sha256(image.ptx),
        cubin_sha256=sha256(image.cubin),
        kernel_hash=kernel_hash(unit),
        compiler=compiler_version(),
        cached=False,
        target=unit.target,
        entries=image.entries,
        warnings=image.warnings,
        sass=_machine_code(image.cubin),
    )


def _machine_code(cubin: bytes) -> dict[str, int]:
    """The facts of the image's machine code; empty where there is no disassembler, which nothing else needs."""
    try:
        return sass_facts(cubin).summary()
    except ToolError as error:
        if error.code == "DISASSEMBLER_MISSING":
            return {}
        raise


_STORED = (
    *("registers", "static_smem_bytes", "spill_bytes", "stack_bytes", "log", "warnings", "sass"),
    *("ptx_sha256", "cubin_sha256", "kernel_hash", "compiler", "target"),
)


def _facts(compiled: Compiled) -> dict[str, Any]:
    facts = {name: getattr(compiled, name) for name in _STORED}
    facts["entries"] = {name: asdict(each) for name, each in compiled.entries.items()}
    return facts


def _from_entry(facts: dict[str, Any], ptx: str, cubin: bytes) -> Compiled:
    entries = {name: EntryResources(**each) for name, each in facts["entries"].items()}
    plain = {name: facts[name] for name in _STORED} | {"warnings": tuple(facts["warnings"])}
    return Compiled(ptx=ptx, cubin=cubin, cached=True, entries=entries, **plain)


def _unwritable(cache: Cache, error: OSError) -> Finding:
    return Finding(
        code="CACHE_UNWRITABLE",
        severity="warning",
        message=f"images are not cached: {cache.root}: {error.strerror or error}; set ADVISOR_CACHE_DIR to a folder "
        "that can be written",
    )
