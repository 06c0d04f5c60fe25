"""The backend that runs a bundle's kernels on a GPU, one process at a time. Lives in the child.

Imports `runtime`, `bundle`, `kinds`, `problem`, `records`, `errors`, and torch where it is installed with CUDA: it then
makes the float64 reference on the GPU and gives the library to compare with.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.bundle import Facts, evaluate, is_empty, resolve
from advisor.errors import DeviceError
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.problem import parse_problem
from advisor.records.candidate import Family
from advisor.records.case import Case
from advisor.records.evidence import Timing, WorstElement
from advisor.records.launch import Kernel, Launch, ResolvedLaunch
from advisor.runtime import Buffer, Device, Prepared, Scratch, open_device
from advisor.validation.checks import Comparison, NumpyArrays, TorchArrays, compare, traced_once
from advisor.validation.kept import keep_case

MARGIN_BYTES = 4096  # of known bytes before and after every buffer: a stray write shows
MARGIN_BYTE = 0xA5
LAUNCHES = 64  # eager, and again in a graph
HOST_LIMIT_S = 180.0  # making inputs and a reference; no GPU code of ours runs
LAUNCH_LIMIT_S = 20.0  # a launch that takes longer hangs: no case here needs a second
SHARED_BYTES = 2**25  # inputs larger than this are made once and shared between processes through files
TIMED_BYTES_OF_L2 = 2  # buffers rotate over this many times the L2 cache
MAX_COPIES = 256
TIMED_SAMPLES = 20
TIMED_US = 4000.0  # of one sample: launches enough to fill it, within these two counts
MIN_LAUNCHES, MAX_LAUNCHES = 4, 512
TIMING_LIMIT_S = 60.0

Work = Callable[[Any], None]
Stage = Callable[[str, float], None]  # (what comes next, seconds that it may take)


@dataclass(frozen=True, slots=True)
class Image:
    """One built kernel: which of its images this device takes, and where that lies."""

    target: str
    path: str


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child needs to know. `launch` holds every kernel, variants and twins too."""

    device_index: int
    problem_text: str
    launch: Launch
    images: Mapping[str, Image]  # kernel id -> image; missing: no image loads here
    folder: str  # for files that processes share
    sm_budget: int | None = None
    residency: Mapping[str, int] = field(default_factory=dict)  # what a first process found


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the device says of one built kernel."""

    loadable: bool
    reason: str  # why it does not load
    max_active_clusters: int
    registers: int
    local_bytes: int


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What one case on one rung showed."""

    launch: ResolvedLaunch | None
    checks: dict[str, bool]
    detail: str
    worst: WorstElement | None
    ratio: float  # largest error / bound
    digest: str  # of the outputs' bytes: equal bits across schedules
    launches: int


@dataclass
class _Held:
    """A buffer with margins of known bytes around it."""

    whole: Buffer
    size: int

    @property
    def address(self) -> int:
        return self.whole.address + MARGIN_BYTES


@dataclass(frozen=True, slots=True)
class Ready:
    """A case whose buffers and kernels are on the device: `works` are its launches in order."""

    case: Case
    kernels: Sequence[Kernel]
    resolved: Sequence[ResolvedLaunch]
    arrays: Mapping[str, NDArray[Any]]
    outputs: Sequence[str]
    works: Sequence[Work]
    scratch: Scratch

    @property
    def is_empty(self) -> bool:
        return any(is_empty(each) for each in self.resolved)


class GpuBackend:
    """Made by `child.main`; every public method is a call of the parent."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._torch = _import_torch()
        self._held: dict[str, _Held] = {}
        self._copies: list[dict[str, _Held]] = []
        self._rotating_case: Case | None = None

    # ---- calls --------------------------------------------------------------------------------------------------

    def open(self, setup: Setup) -> None:
        self._stage("opening the device", 60.0)
        self._setup = setup
        self._device: Device = open_device(setup.device_index)
        self._workload: Workload = make_workload(parse_problem(setup.problem_text, "problem.yaml"))
        self._xp = TorchArrays(self._torch) if self._torch is not None else NumpyArrays()

    def survey(self) -> dict[str, KernelFacts]:
        """Every kernel of the launch: does it load, and how many of its clusters are resident."""
        facts = {}
        for kernel in self._setup.launch.kernels:
            self._stage(f"loading {kernel.id}", 60.0)
            facts[kernel.id] = self._survey_one(kernel)
        return facts

    def libraries(self) -> dict[str, str]:
        """What the numbers of this run depend on beside the driver."""
        found = {"numpy": np.__version__}
        if self._torch is not None:
            found |= {"torch": str(self._torch.__version__), "torch_cuda": str(self._torch.version.cuda)}
        return found

    def run_case(
        self, run: str, kernel_ids: Sequence[str], case: Case, repeat: bool = True, keep: str | None = None
    ) -> CaseOutcome:
        """One case on one rung: a first launch checked in full, then (`repeat`) 64 eager ones and 64 in a graph.

        Raises DeviceError when the launch is refused or the kernel faults; the process is then of no use any more.
        """
        ready = self._made_ready(kernel_ids, case)
        if keep is not None:
            keep_case(Path(keep), run, case, ready.resolved, ready.arrays)
        outcome = self._first(ready)
        if repeat and not ready.is_empty and all(outcome.checks.values()):
            outcome = self._repeat(ready, outcome)
        self._device.release(ready.scratch)
        return outcome

    def _made_ready(self, kernel_ids: Sequence[str], case: Case) -> Ready:
        """A case with its buffers on the device and its kernels loaded; nothing is launched yet."""
        self._stage(f"{case.name}: inputs", HOST_LIMIT_S)
        arrays = self._inputs(case)
        kernels = [self._setup.launch.kernel(each) for each in kernel_ids]
        self._upload(arrays, kernels, case)
        resolved = [self._resolve(kernel, case) for kernel in kernels]
        buffers = self._setup.launch.buffers
        outputs = [name for name, buffer in buffers.items() if buffer.role != "in" and name in arrays]
        scratch = self._device.scratch()
        works = [self._prepare(kernel, each, scratch) for kernel, each in zip(kernels, resolved, strict=True)]
        return Ready(case, kernels, resolved, arrays, outputs, works, scratch)

    def _first(self, ready: Ready) -> CaseOutcome:
        """The first launch, checked in full."""
        self._stage(f"{ready.case.name}: launch", LAUNCH_LIMIT_S)
        self._run(ready.works)
        self._stage(f"{ready.case.name}: reference and comparison", HOST_LIMIT_S)
        return self._check(ready)

    def time(self, kernel_ids: Sequence[str], case: Case, *, baseline: bool = True) -> Timing:
        """Device time of one rung on `case`: graphs of launches over buffers that rotate past the L2 cache.

        With torch the library's time for the same product comes from the same run, sample by sample in turn.
        """
        works, label = [self._rung_work(kernel_ids, case)], None
        library = self._library_work(case) if baseline else None
        if library is not None:
            label, work = library
            works.append(work)
        samples = self._sample(works, case)
        own = samples[0]
        flops = self._workload.flops(case)
        timing = Timing(
            median_us=statistics.median(own),
            low_us=min(own),
            high_us=max(own),
            samples=len(own),
            tflops=flops / statistics.median(own) / 1e6 if flops else None,
        )
        if label is None:
            return timing
        other = statistics.median(samples[1])
        return timing.model_copy(
            update={"baseline": label, "baseline_us": other, "ratio": other / statistics.median(own)}
        )

    def compare_times(self, first: Sequence[str], second: Sequence[str], case: Case) -> tuple[list[float], list[float]]:
        """Microseconds per launch of two rungs on one case, sample by sample in turn."""
        samples = self._sample([self._rung_work(first, case), self._rung_work(second, case)], case)
        return samples[0], samples[1]

    # ---- loading and residency ----------------------------------------------------------------------------------

    def _survey_one(self, kernel: Kernel) -> KernelFacts:
        image = self._setup.images.get(kernel.id)
        if image is None:
            targets = ", ".join(kernel.images)
            return KernelFacts(False, f"no image for this device: it has {targets}", 0, 0, 0)
        try:
            loaded = self._device.load(Path(image.path).read_bytes(), kernel.entry)
            count = self._device.max_active_clusters(
                loaded,
                block=kernel.block,
                cluster=kernel.cluster,
                dynamic_smem_bytes=_constant(kernel.dynamic_smem_bytes),
                carveout=kernel.carveout,
            )
        except DeviceError as error:
            return KernelFacts(False, str(error), 0, 0, 0)
        return KernelFacts(True, "", count, loaded.registers, loaded.local_bytes)

    def _facts(self) -> Facts:
        sms = self._device.info.sms
        return Facts(
            num_sms=sms,
            sm_budget=self._setup.sm_budget or sms,
            max_active_clusters=self._setup.residency,
            loadable=frozenset(self._setup.images),
            alignments=dict.fromkeys(self._setup.launch.buffers, 256),
        )

    def _resolve(self, kernel: Kernel, case: Case) -> ResolvedLaunch:
        target = self._setup.images[kernel.id].target
        known = {each.name for each in self._setup.launch.arguments}
        arguments = {name: value for name, value in case.arguments.items() if name in known}
        return resolve(self._setup.launch, kernel.id, arguments, self._facts(), target)

    def _prepare(
        self, kernel: Kernel, resolved: ResolvedLaunch, scratch: Any, pointers: Mapping[str, int] | None = None
    ) -> Prepared:
        loaded = self._device.load(Path(self._setup.images[kernel.id].path).read_bytes(), kernel.entry)
        own = {name: held.address for name, held in self._held.items()}
        return self._device.prepare(loaded, resolved, own if pointers is None else pointers, scratch)

    # ---- buffers ------------------------------------------------------------------------------------------------

    def _inputs(self, case: Case) -> dict[str, NDArray[Any]]:
        """The case's buffers; large ones are made by the first process and read by the others."""
        key = hashlib.sha256(json.dumps([case.arguments, case.data, case.seed]).encode()).hexdigest()[:24]
        folder = Path(self._setup.folder) / key
        if (folder / "complete").exists():
            return {path.stem: _load(path, self._dtype(path.stem)) for path in sorted(folder.glob("*.npy"))}
        arrays = self._workload.inputs(case)
        if sum(each.nbytes for each in arrays.values()) > SHARED_BYTES:
            folder.mkdir(exist_ok=True)
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array.view(np.uint8))
            (folder / "complete").touch()
        return arrays

    def _dtype(self, name: str) -> np.dtype[Any]:
        import ml_dtypes

        torch_name = self._setup.launch.buffers[name].dtype
        return np.dtype(getattr(ml_dtypes, torch_name, None) or torch_name)

    def _upload(self, arrays: Mapping[str, NDArray[Any]], kernels: Sequence[Kernel], case: Case) -> None:
        for held in self._held.values():
            self._device.free(held.whole)
        self._held.clear()
        for name, array in arrays.items():
            self._held[name] = self._hold(array)
        for name in self._trace_buffers(kernels, arrays):
            extents = _extents(self._setup.launch.buffers[name].shape, case)
            self._held[name] = self._hold(np.zeros(math.prod(extents), np.uint32))

    def _hold(self, array: NDArray[Any]) -> _Held:
        whole = self._device.allocate(array.nbytes + 2 * MARGIN_BYTES)
        self._device.fill(whole, MARGIN_BYTE)
        self._device.synchronize()
        self._device.upload(array.view(np.uint8), whole, MARGIN_BYTES)
        return _Held(whole, array.nbytes)

    @staticmethod
    def _trace_buffers(kernels: Sequence[Kernel], arrays: Mapping[str, Any]) -> list[str]:
        """Buffers that no caller has: the counters of traced twins."""
        params = [param for kernel in kernels for param in kernel.params]
        return [each.buffer for each in params if each.kind == "ptr" and each.buffer and each.buffer not in arrays]

    def _array(self, name: str) -> Any:
        """A buffer's contents: a tensor on the GPU where torch is there, else a copy on the host."""
        held = self._held[name]
        if self._torch is None:
            raw = self._device.download(held.whole, MARGIN_BYTES, held.size)
            return raw.view(self._dtype(name))
        return self._tensor(held, self._setup.launch.buffers[name].dtype)

    def _tensor(self, held: _Held, dtype: str) -> Any:
        device, kind = f"cuda:{self._setup.device_index}", getattr(self._torch, dtype)
        if not held.size:
            return self._torch.empty(0, dtype=kind, device=device)
        return self._torch.as_tensor(Buffer(held.address, held.size), device=device).view(kind)

    def _repoison(self, arrays: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> None:
        for name in outputs:
            self._device.upload(arrays[name].view(np.uint8), self._held[name].whole, MARGIN_BYTES)

    # ---- running and checking -----------------------------------------------------------------------------------

    def _run(self, works: Sequence[Work]) -> None:
        for work in works:
            work(self._device.stream)
        self._device.synchronize()

    def _check(self, ready: Ready) -> CaseOutcome:
        kernels, case, arrays, outputs = ready.kernels, ready.case, ready.arrays, ready.outputs
        family: Family = kernels[0].family
        values = {name: self._array(name) for name in arrays}
        reference = self._workload.reference(case, values)
        bound = self._workload.bound(case, values, family)
        checks: dict[str, bool] = {}
        details: list[str] = []
        results: list[Comparison] = []
        for name in outputs:
            initial = self._initial(arrays[name], values[name])
            exact = case.data == "integers"
            result = compare(self._xp, values[name], initial, reference[name], bound[name], exact=exact)
            results.append(result)
            checks |= {each: checks.get(each, True) and value for each, value in result.checks.items()}
            details += [f"{name}: {result.detail}"] if result.detail else []
        checks["margins_untouched"] = self._margins_intact()
        checks["inputs_untouched"] = self._inputs_intact(arrays, outputs)
        details += [f"{name} is false" for name in ("margins_untouched", "inputs_untouched") if not checks[name]]
        for name in self._trace_buffers(kernels, arrays):
            checks["traced_once"], words = traced_once(self._counts(name))
            details += [words] if words else []
        worst = max(results, key=lambda each: each.ratio, default=None)
        return CaseOutcome(
            launch=ready.resolved[0],
            checks=checks,
            detail="; ".join(details),
            worst=worst.worst if worst else None,
            ratio=worst.ratio if worst else 0.0,
            digest=hashlib.sha256("".join(each.digest for each in results).encode()).hexdigest(),
            launches=1,
        )

    def _initial(self, array: NDArray[Any], like: Any) -> Any:
        if self._torch is None or not array.size:
            return array if self._torch is None else like
        flat = self._torch.from_numpy(np.array(array.view(np.uint8)))
        return flat.to(like.device).view(like.dtype)

    def _counts(self, name: str) -> NDArray[np.uint32]:
        held = self._held[name]
        return self._device.download(held.whole, MARGIN_BYTES, held.size).view(np.uint32)

    def _margins_intact(self) -> bool:
        for held in self._held.values():
            for offset in (0, MARGIN_BYTES + held.size):
                if (self._device.download(held.whole, offset, MARGIN_BYTES) != MARGIN_BYTE).any():
                    return False
        return True

    def _inputs_intact(self, arrays: Mapping[str, NDArray[Any]], outputs: Sequence[str]) -> bool:
        for name, array in arrays.items():
            if name in outputs or array.nbytes > SHARED_BYTES:  # a large input has the small cases' word for it
                continue
            held = self._held[name]
            if self._device.download(held.whole, MARGIN_BYTES, held.size).tobytes() != array.tobytes():
                return False
        return True

    def _repeat(self, ready: Ready, outcome: CaseOutcome) -> CaseOutcome:
        """64 launches back to back and 64 in a graph: the same bits each time."""
        case, works, arrays, outputs = ready.case, ready.works, ready.arrays, ready.outputs
        first = {name: self._xp.copy(self._array(name)) for name in outputs}

        def same() -> bool:
            return all(self._xp.same(self._array(name), first[name]) for name in outputs)

        self._stage(f"{case.name}: {LAUNCHES} launches", LAUNCH_LIMIT_S)
        eager = True
        for _ in range(4):
            self._repoison(arrays, outputs)
            for _ in range(LAUNCHES // 4):
                each_once(works, self._device.stream)
            self._device.synchronize()
            eager = eager and same()
        self._stage(f"{case.name}: launch of a graph of {LAUNCHES}", LAUNCH_LIMIT_S)
        self._repoison(arrays, outputs)
        graph = self._device.capture(partial(each_once, list(works) * LAUNCHES))
        graph.launch(self._device.stream)
        self._device.synchronize()
        in_graph = same()
        graph.close()
        details = [outcome.detail] if outcome.detail else []
        details += [] if eager else [f"{LAUNCHES} launches do not give the same bits"]
        details += [] if in_graph else ["the graph does not give the same bits"]
        return replace(
            outcome,
            checks={**outcome.checks, "same_bits_64_launches": eager, "same_bits_in_a_graph": in_graph},
            detail="; ".join(details),
            launches=1 + 2 * LAUNCHES,
        )

    # ---- time ---------------------------------------------------------------------------------------------------

    def _rotation(self, case: Case) -> list[dict[str, _Held]]:
        """Copies of the case's buffers that together exceed the L2 cache: no launch finds its operands there."""
        if self._rotating_case == case:
            return self._copies
        for held in (held for copy in self._copies for held in copy.values()):
            self._device.free(held.whole)
        self._stage(f"{case.name}: inputs for timing", HOST_LIMIT_S)
        first = {name: self._hold(array) for name, array in self._inputs(case).items()}
        size = sum(held.size for held in first.values())
        wanted = TIMED_BYTES_OF_L2 * self._device.info.limits["l2_bytes"]
        count = max(1, min(MAX_COPIES, -(-wanted // max(1, size))))
        self._copies = [first]
        for _ in range(count - 1):
            copy = {name: _Held(self._device.allocate(held.whole.size), held.size) for name, held in first.items()}
            for name, held in copy.items():
                self._device.copy(held.whole, first[name].whole)
            self._copies.append(copy)
        self._rotating_case = case
        return self._copies

    def _rung_work(self, kernel_ids: Sequence[str], case: Case) -> Work:
        """Launches of one rung, each on the next copy of the buffers."""
        kernels = [self._setup.launch.kernel(each) for each in kernel_ids]
        resolved = [self._resolve(kernel, case) for kernel in kernels]
        prepared = []
        for copy in self._rotation(case):
            pointers = {name: held.address for name, held in copy.items()}
            scratch = self._device.scratch()
            prepared.append([self._prepare(*each, scratch, pointers) for each in zip(kernels, resolved, strict=True)])
        turn = itertools.cycle(prepared)
        return lambda stream: each_once(next(turn), stream)

    def _library_work(self, case: Case) -> tuple[str, Work] | None:
        """The library's product on the same copies; None where it has no such product."""
        torch = self._torch
        if torch is None:
            return None
        calls = []
        for copy in self._rotation(case):
            tensors = {name: self._tensor(held, self._setup.launch.buffers[name].dtype) for name, held in copy.items()}
            found = self._workload.library(case, tensors)
            if found is None:
                return None
            label, call = found
            calls.append(call)
        turn = itertools.cycle(calls)

        def work(stream: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(int(stream))):
                next(turn)()

        return label, work

    def _sample(self, works: Sequence[Work], case: Case) -> list[list[float]]:
        """Microseconds per launch, `TIMED_SAMPLES` of each work, in turn. A sample is a graph of many launches."""
        self._stage(f"{case.name}: launches for timing", TIMING_LIMIT_S)
        graphs, counts = [], []
        for work in works:
            for _ in range(3):
                work(self._device.stream)
            self._device.synchronize()
            estimate = max(0.5, min(self._device.time_us(work) for _ in range(3)))
            count = int(max(MIN_LAUNCHES, min(MAX_LAUNCHES, TIMED_US / estimate)))
            counts.append(count)
            graphs.append(self._device.capture(partial(each_once, [work] * count)))
        samples = self._device.time_interleaved_us([graph.launch for graph in graphs], TIMED_SAMPLES)
        for graph in graphs:
            graph.close()
        return [[each / count for each in taken] for taken, count in zip(samples, counts, strict=True)]


def each_once(works: Sequence[Work], stream: Any) -> None:
    for work in works:
        work(stream)


def _import_torch() -> Any:
    """torch with a GPU, or None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _constant(value: str | int) -> int:
    """An expression without names: the launch file's dynamic shared memory."""
    return int(evaluate(value, {}))


def _extents(shape: Sequence[str | int], case: Case) -> list[int]:
    names = {name: value for name, value in case.arguments.items() if isinstance(value, int)}
    return [int(evaluate(each, names)) for each in shape]


def _load(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    raw: NDArray[Any] = np.load(path, mmap_mode="r")
    return raw.view(dtype)
