"""The project's own row reductions, compiled and launched in the emulator, against the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.bundle.resolve import Facts, resolve
from advisor.codegen import templates
from advisor.emulator import Outcome, load_program, run
from advisor.kinds.row_reduce import kernels, numerics
from advisor.kinds.row_reduce.work import RowWork
from advisor.problem.row_reduce import RowReduceProblem
from advisor.records.candidate import Candidate, Family, Schedule
from advisor.records.case import Case
from advisor.records.launch import Launch, ResolvedLaunch, Rung
from advisor.toolchain import Unit, compile_cuda

TARGETS: dict[Family, str] = {"sm90": "sm_90a", "sm100": "sm_100a", "portable": "sm_80"}


def problem(op: str, rows: int, cols: int, **changes: Any) -> RowReduceProblem:
    values = {"kind": "row_reduce", "name": "sample", "op": op, "rows": rows, "cols": cols} | changes
    return RowReduceProblem.model_validate(values)


def candidate(
    family: Family = "sm90",
    cluster: int = 1,
    schedule: Schedule = "one_tile",
    *,
    threads: int = 64,
    row_threads: int = 64,
    vectors: int = 2,
    slots: int | None = None,
    batch: int = 1,
    held: int = 0,
    weight_slots: int = 0,
    early: int = 0,
    prefetch: int = 0,
) -> Candidate:
    """A small kernel. `vectors` 0: it streams, through 4 slots."""
    slots = (vectors or 4) if slots is None else slots
    columns = max(1, vectors) * row_threads * 8
    work = RowWork(row_threads, vectors, batch, 1, held, weight_slots, early, prefetch)
    return Candidate(family, (cluster, 1, 1), schedule, (threads // row_threads, columns, 8), slots, threads, work)


class RowKernel:
    """One kernel, compiled once. `edits` are (file, old, new): a header by its name, or `kernel` for the source."""

    def __init__(self, p: RowReduceProblem, c: Candidate, edits: tuple[tuple[str, str, str], ...] = ()) -> None:
        self.problem, self.candidate, self.target = p, c, TARGETS[c.family]
        (self.spec,) = kernels.kernels(p, c)
        source = templates.render(self.spec.template, **self.spec.context)
        texts = {"kernel": source, **templates.headers_for(source)}
        for file, old, new in edits:
            assert texts[file].count(old) == 1, f"{old!r} occurs {texts[file].count(old)} times in {file}"
            texts[file] = texts[file].replace(old, new)
        unit = Unit(self.spec.kernel.source, texts.pop("kernel"), texts, self.target, self.spec.kernel.defines)
        self.ptx = compile_cuda(unit).ptx
        self.program = load_program(self.ptx, self.spec.kernel.entry)

    def resolved(self, case: Case, *, resident: int = 2) -> ResolvedLaunch:
        """The case's launch on a device that has `resident` clusters of the kernel at once."""
        kernel = self.spec.kernel
        launch = Launch(
            name="sample",
            arguments=numerics.arguments(self.problem),
            buffers=numerics.buffers(self.problem),
            kernels=[kernel],
            ladder=[Rung(run=kernel.id, when="True")],
        )
        facts = Facts(132, 132, {kernel.id: resident}, frozenset({kernel.id}))
        return resolve(launch, kernel.id, case.arguments, facts, self.target)

    def run(self, case: Case, inputs: Mapping[str, NDArray[Any]], *, resident: int = 2, **options: Any) -> Outcome:
        resolved = self.resolved(case, resident=resident)
        given = {name: each for name, each in inputs.items() if name in resolved.buffers}
        return run(self.program, resolved, inputs=given, **options)

    def of(self, x: NDArray[Any], **options: Any) -> NDArray[np.float64]:
        """The kernel's result for these rows, as float64: [rows, cols] or [rows]."""
        case = own_case(self.problem)
        inputs = numerics.inputs(self.problem, case)
        inputs["X"].reshape(x.shape[0], -1)[:, : x.shape[1]] = x.astype(inputs["X"].dtype)
        found: NDArray[np.float64] = self.run(case, inputs, **options).typed("Y").astype(np.float64)
        return found.reshape(x.shape) if self.problem.elementwise else found

    def check(self, case: Case, **options: Any) -> Outcome:
        """Runs the case and holds every element of Y against the bound, integers bit for bit."""
        inputs = numerics.inputs(self.problem, case)
        outcome = self.run(case, inputs, **options)
        wanted = numerics.reference(self.problem, case, inputs)["Y"]
        allowed = numerics.bound(self.problem, case, inputs)["Y"]
        typed = outcome.typed("Y")
        found = typed.astype(np.float64).reshape(wanted.shape)
        inside = ~np.isnan(wanted)
        assert inside.any()
        with np.errstate(invalid="ignore"):
            error = np.abs(found - wanted)[inside]
        same = found[inside] == wanted[inside]
        if case.data == "integers":
            assert np.array_equal(found[inside], wanted[inside].astype(typed.dtype).astype(np.float64))
        assert (same | (error <= allowed[inside])).all(), f"worst excess {np.max(error - allowed[inside])}"
        return outcome


def own_case(p: RowReduceProblem, **changes: int | float) -> Case:
    case = numerics.own_case(p)
    return Case(case.name, case.why, {**case.arguments, **changes}, case.data, case.seed)
