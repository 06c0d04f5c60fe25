"""The backend that measures on a GPU: every contestant of one problem checked, then timed in turn. Lives in a child.

Imports `runtime`, `bundle`, `kinds`, `problem`, `records`, `errors`, the comparison of `validation`, and torch where it
is installed with CUDA: it then makes the inputs and the float64 reference on the GPU, and calls the library.

One problem goes like this:
  1. inputs, with poison in D and in padding; copies of all buffers, together past twice the L2 and three at least
  2. each kernel of ours runs once and is compared with the reference, element by element: what fails is not timed
  3. a sample is a graph of whole rotations over the copies that takes `sample_us` or more
  4. rounds: each contestant gives one sample a round, and who begins moves on by one
  5. each kernel of ours runs its graph once more, and must leave the bits of step 2
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from advisor.bench.results import State
from advisor.bundle import Facts, evaluate, resolve
from advisor.errors import AdvisorError, DeviceError, ToolError
from advisor.kinds import workload as make_workload
from advisor.kinds.workload import Workload
from advisor.problem import parse_problem
from advisor.records.case import Case
from advisor.records.evidence import CaseVerdict, Chip
from advisor.records.launch import Kernel, Launch
from advisor.runtime import Buffer, Device, Graph, Monitor, Reading, open_device
from advisor.validation.checks import NumpyArrays, TorchArrays, compare
from advisor.validation.gpu import Image

ROTATION_OF_L2 = 2
MIN_COPIES, MAX_COPIES = 3, 1024
MAX_LAUNCHES = 1024
WARM_UP = 2
FINGERPRINT_WORDS = 2**25
HOST_FLOPS = 2e11  # of a reference that NumPy may make: a minute
INPUT_LIMIT_S, CHECK_LIMIT_S, LAUNCH_LIMIT_S, ROUNDS_LIMIT_S = 240.0, 240.0, 20.0, 240.0

Work = Callable[[Any], None]
Stage = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel of ours: its name in this run, and the kernels of a launch in order."""

    name: str
    kernel_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One problem. `launch` holds the kernels of every entry; `twins` are entries timed a second time."""

    name: str
    problem_text: str
    launch: Launch
    images: Mapping[str, Image]
    entries: tuple[Entry, ...]
    twins: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    rounds: int = 10
    sample_us: float = 4000.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one contestant gave."""

    verdict: CaseVerdict
    detail: str = ""
    label: str = ""  # of a baseline
    samples_us: list[float] = field(default_factory=list)
    launches: int = 0
    state: State = field(default_factory=State)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one problem gave, by contestant: entries by name, twins as `<name> twin`, baselines by their own name."""

    arguments: dict[str, int | float]
    flops: int
    least_bytes: int
    copies: int
    rotated_bytes: int
    contestants: dict[str, Measured]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the numbers of a run depend on."""

    chip: Chip
    l2_bytes: int
    software: dict[str, str]
    clocks: str


@dataclass(frozen=True)
class Offer:
    """A way to do what a baseline does: what it is, and its work on every copy of the buffers."""

    label: str
    works: Sequence[Work]


@dataclass
class _Racer:
    """A contestant with its graph and what it gave so far."""

    name: str
    graph: Graph
    launches: int
    label: str = ""
    entry: Entry | None = None
    samples: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)


class BenchBackend:
    """Made by `validation.child`; every public method is a call of the parent."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._torch = _torch_with_gpu()

    def open(self, device_index: int) -> None:
        self._stage("opening the device", 60.0)
        self._index = device_index
        self._device: Device = open_device(device_index)
        self._monitor: Monitor = self._device.monitor()
        self._xp = TorchArrays(self._torch) if self._torch is not None else NumpyArrays()

    def greet(self) -> Greeting:
        software = {"numpy": np.__version__}
        for name in ("torch", "triton"):
            module = self._torch if name == "torch" else _module("triton")
            if module is not None:
                software[name] = str(module.__version__)
        return Greeting(
            chip=self._device.info.chip(),
            l2_bytes=self._device.info.limits["l2_bytes"],
            software=software,
            clocks=self._monitor.why_not or "NVML, read while each sample runs",
        )

    def measure(self, job: Job) -> Outcome:
        """Checks and times all contestants of one problem. A kernel that faults ends the call with DeviceError whose
        numbers have the `entry`; this process is then of no use any more."""
        problem = _Problem(self._device, self._torch, self._index, job)
        self._stage("inputs", INPUT_LIMIT_S)
        problem.make_inputs()
        results: dict[str, Measured] = {}
        digests = self._check_all(problem, results)
        racers = self._racers(problem, digests, results)
        self._stage("rounds", ROUNDS_LIMIT_S)
        self._race(racers, job.rounds)
        self._collect(problem, racers, digests, results)
        outcome = Outcome(
            arguments=dict(problem.case.arguments),
            flops=problem.workload.flops(problem.case),
            least_bytes=problem.workload.least_bytes(problem.case),
            copies=len(problem.copies),
            rotated_bytes=len(problem.copies) * problem.copy_bytes,
            contestants=results,
        )
        for racer in racers:
            racer.graph.close()
        problem.free()
        return outcome

    # ---- checking -----------------------------------------------------------------------------------------------

    def _check_all(self, problem: _Problem, results: dict[str, Measured]) -> dict[str, str]:
        """The digest of the output of every entry that is right."""
        digests = {}
        for entry in problem.job.entries:
            self._stage(f"{entry.name}: launch", LAUNCH_LIMIT_S)
            with _blamed(entry):
                try:
                    problem.prepare(entry)
                except DeviceError as error:  # the driver refuses it: nothing has run
                    results[entry.name] = Measured("launch_error", str(error))
                    continue
                problem.poison()
                problem.launch(entry, self._device.stream)
                self._device.synchronize()
            self._stage("reference and comparison", CHECK_LIMIT_S)
            verdict, detail, digest = problem.check(entry, self._xp)
            if verdict == "correct":
                digests[entry.name] = digest
            else:
                results[entry.name] = Measured(verdict, detail)
        problem.forget_reference()
        return digests

    # ---- timing -------------------------------------------------------------------------------------------------

    def _racers(self, problem: _Problem, digests: Mapping[str, str], results: dict[str, Measured]) -> list[_Racer]:
        racers = []
        for entry in problem.job.entries:
            if entry.name not in digests:
                continue
            self._stage(f"{entry.name}: launch", LAUNCH_LIMIT_S)
            with _blamed(entry):
                works = problem.works(entry)
                racers.append(self._racer(entry.name, works, problem.job.sample_us, entry))
                if entry.name in problem.job.twins:
                    racers.append(self._racer(f"{entry.name} twin", works, problem.job.sample_us, entry))
        for name in problem.job.baselines:
            self._stage(f"{name}: launch", CHECK_LIMIT_S)
            try:
                offers, why = problem.baseline(name)
                if offers:
                    racers.append(self._fastest(name, offers, problem.job.sample_us))
                    continue
            except AdvisorError:  # a fault of the device
                raise
            except Exception as error:  # noqa: BLE001  whatever another library raises: one yardstick less
                why = f"{type(error).__name__}: {error}"
            results[name] = Measured("not_run", why)
        return racers

    def _fastest(self, name: str, offers: Sequence[Offer], sample_us: float) -> _Racer:
        """The one whose graph is fastest: the driver may put other work into a graph than it does on a stream."""
        racers = [self._racer(name, each.works, sample_us, None, each.label) for each in offers]
        times = [
            min(self._device.time_us(each.graph.launch) for _ in range(WARM_UP)) / each.launches for each in racers
        ]
        best = racers[times.index(min(times))]
        for each in racers:
            if each is not best:
                each.graph.close()
        return best

    def _racer(
        self, name: str, works: Sequence[Work], sample_us: float, entry: Entry | None, label: str = ""
    ) -> _Racer:
        """A graph of whole rotations, `sample_us` long or longer."""
        stream = self._device.stream
        rotations = 1
        graph = self._captured(works, rotations)
        rotation_us = min(self._device.time_us(graph.launch) for _ in range(WARM_UP))
        wanted = math.ceil(sample_us / max(rotation_us, 0.5))
        most = max(1, MAX_LAUNCHES // len(works))
        if wanted > 1 and most > 1:
            graph.close()
            rotations = min(wanted, most)
            graph = self._captured(works, rotations)
        graph.launch(stream)
        self._device.synchronize()
        return _Racer(name, graph, rotations * len(works), label, entry)

    def _captured(self, works: Sequence[Work], rotations: int) -> Graph:
        works[0](self._device.stream)  # what a first call sets up is no work of the graph's
        self._device.synchronize()
        graph = self._device.capture(partial(_each, [*works] * rotations))
        graph.launch(self._device.stream)
        self._device.synchronize()
        return graph

    def _race(self, racers: Sequence[_Racer], rounds: int) -> None:
        for turn in range(rounds):
            start = turn % max(1, len(racers))
            for racer in [*racers[start:], *racers[:start]]:
                look: list[Reading] = []
                time_us = self._device.time_us(racer.graph.launch, lambda into=look: into.append(self._monitor.read()))  # type: ignore[misc]
                racer.samples.append(time_us / racer.launches)
                racer.readings += look

    def _collect(
        self, problem: _Problem, racers: Sequence[_Racer], digests: Mapping[str, str], results: dict[str, Measured]
    ) -> None:
        for racer in racers:
            verdict: CaseVerdict = "not_run"
            if racer.entry is not None:
                self._stage(f"{racer.entry.name}: launch", LAUNCH_LIMIT_S)
                with _blamed(racer.entry):
                    problem.poison()
                    racer.graph.launch(self._device.stream)
                    self._device.synchronize()
                verdict = "correct"
                if problem.digest(self._xp) != digests[racer.entry.name]:
                    detail = "the launches that were timed left other bits than the one that was checked"
                    results[racer.name] = Measured("mismatch", detail)
                    continue
            results[racer.name] = Measured(
                verdict, "", racer.label, racer.samples, racer.launches, state_of(racer.readings)
            )


class _Problem:
    """The buffers of one problem and the work on them."""

    def __init__(self, device: Device, torch: Any, index: int, job: Job) -> None:
        self.job = job
        self.workload: Workload = make_workload(parse_problem(job.problem_text, job.name))
        self.case: Case = self.workload.own_case()
        self.copies: list[dict[str, int]] = []  # addresses by buffer
        self.copy_bytes = 0
        self._device, self._torch, self._index = device, torch, index
        self._tensors: list[dict[str, Any]] = []  # with torch
        self._buffers: list[dict[str, Buffer]] = []  # without
        self._first: dict[str, Any] = {}  # the first bytes of outputs
        self._residency: dict[str, int] = {}
        self._works: dict[str, list[Work]] = {}
        self._scratch: list[Any] = []
        self._reference: dict[str, Any] = {}
        self._bounds: dict[str, Any] = {}
        self._own: list[Buffer] = []

    # ---- buffers ------------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[str]:
        return [name for name, buffer in self.job.launch.buffers.items() if buffer.role != "in" and name in self._first]

    def make_inputs(self) -> None:
        """The buffers, and copies of them past twice the L2."""
        if self._torch is not None:
            tensors = self.workload.inputs_on(self.case, self._torch, f"cuda:{self._index}")
            self.copy_bytes = sum(each.numel() * each.element_size() for each in tensors.values())
            self._first = dict(tensors)
            self._tensors = [
                {name: each.clone() for name, each in tensors.items()} for _ in range(self._wanted_copies())
            ]
            self.copies = [{name: each.data_ptr() for name, each in copy.items()} for copy in self._tensors]
            self._torch.cuda.synchronize()
            return
        if self.workload.flops(self.case) > HOST_FLOPS:
            raise ToolError(
                "BENCH_NEEDS_TORCH",
                f"{self.job.name}: a reference of {self.workload.flops(self.case):.2g} operations takes too long "
                "without torch, and a kernel that is not checked is not timed",
                fix="install torch with CUDA, or take a smaller problem",
            )
        arrays = self.workload.inputs(self.case)
        self.copy_bytes = sum(each.nbytes for each in arrays.values())
        self._first = dict(arrays)
        for _ in range(self._wanted_copies()):
            self._buffers.append({name: self._device.upload(each.view(np.uint8)) for name, each in arrays.items()})
        self.copies = [{name: each.address for name, each in copy.items()} for copy in self._buffers]

    def _wanted_copies(self) -> int:
        wanted = ROTATION_OF_L2 * self._device.info.limits["l2_bytes"]
        return max(MIN_COPIES, min(MAX_COPIES, -(-wanted // max(1, self.copy_bytes))))

    def poison(self) -> None:
        """The outputs of the first copy as they were made."""
        for name in self.outputs:
            if self._torch is not None:
                self._tensors[0][name].copy_(self._first[name])
            else:
                self._device.upload(self._first[name].view(np.uint8), self._buffers[0][name])
        if self._torch is not None:
            self._torch.cuda.synchronize()

    def _values(self) -> dict[str, Any]:
        """The first copy as arrays that can be compared."""
        if self._torch is not None:
            return self._tensors[0]
        return {
            name: self._device.download(buffer).view(self._first[name].dtype)
            for name, buffer in self._buffers[0].items()
        }

    def free(self) -> None:
        for scratch in self._scratch:
            self._device.release(scratch)
        for buffer in [*self._own, *(each for copy in self._buffers for each in copy.values())]:
            self._device.free(buffer)
        self._tensors.clear()
        self._first.clear()
        if self._torch is not None:
            self._torch.cuda.empty_cache()

    # ---- kernels of ours ----------------------------------------------------------------------------------------

    def prepare(self, entry: Entry) -> None:
        """One launch on every copy, the first of which is checked. Copies run in turn and share scratch."""
        kernels = [self.job.launch.kernel(each) for each in entry.kernel_ids]
        loaded = [self._load(kernel) for kernel in kernels]
        resolved = [self._resolve(kernel) for kernel in kernels]
        scratch = self._device.scratch()
        self._scratch.append(scratch)
        self._works[entry.name] = [
            partial(
                _each, [self._device.prepare(*pair, addresses, scratch) for pair in zip(loaded, resolved, strict=True)]
            )
            for addresses in self.copies
        ]

    def _load(self, kernel: Kernel) -> Any:
        image = self.job.images.get(kernel.id)
        if image is None:
            raise DeviceError("CUBIN_NOT_LOADABLE", f"{kernel.id} has no image for this device")
        loaded = self._device.load(Path(image.path).read_bytes(), kernel.entry)
        if kernel.id not in self._residency:
            self._residency[kernel.id] = self._device.max_active_clusters(
                loaded,
                block=kernel.block,
                cluster=kernel.cluster,
                dynamic_smem_bytes=int(evaluate(kernel.dynamic_smem_bytes, {})),
                carveout=kernel.carveout,
            )
            if self._residency[kernel.id] == 0:
                raise DeviceError("ZERO_ACTIVE_CLUSTERS", f"no cluster of {kernel.id} is resident here")
        return loaded

    def _resolve(self, kernel: Kernel) -> Any:
        launch, sms = self.job.launch, self._device.info.sms
        budget = self.workload.limits()["sm_budget"]
        facts = Facts(
            num_sms=sms,
            sm_budget=budget or sms,
            max_active_clusters=self._residency,
            loadable=frozenset(self.job.images),
            alignments=dict.fromkeys(launch.buffers, 256),
        )
        return resolve(launch, kernel.id, self.case.arguments, facts, self.job.images[kernel.id].target)

    def launch(self, entry: Entry, stream: Any) -> None:
        self._works[entry.name][0](stream)

    def works(self, entry: Entry) -> list[Work]:
        return self._works[entry.name]

    def check(self, entry: Entry, xp: Any) -> tuple[CaseVerdict, str, str]:
        """(verdict, what is wrong, digest) of the outputs in the first copy."""
        values = self._values()
        family = self.job.launch.kernel(entry.kernel_ids[0]).family
        if not self._reference:
            self._reference = dict(self.workload.reference(self.case, values))
        if family not in self._bounds:
            self._bounds[family] = self.workload.bound(self.case, values, family)
        details, right = [], True
        for name in self.outputs:
            found = compare(
                xp, values[name], self._first[name], self._reference[name], self._bounds[family][name], exact=False
            )
            right = right and found.correct
            details += [f"{name}: {found.detail}"] if found.detail else []
        return ("correct" if right else "mismatch"), "; ".join(details), self.digest(xp)

    def digest(self, xp: Any) -> str:
        values = self._values()
        return " ".join(self._fingerprint(values[name], xp) for name in self.outputs)

    def _fingerprint(self, array: Any, xp: Any) -> str:
        """Tells outputs apart. On a GPU the sum of all words, each times an odd number of its place, modulo 2^64."""
        if self._torch is None:
            return str(xp.digest(array))
        torch, total = self._torch, 0
        words = xp.bits(array)
        for start in range(0, words.numel(), FINGERPRINT_WORDS):
            part = words[start : start + FINGERPRINT_WORDS].to(torch.int64)
            weights = torch.arange(start, start + part.numel(), device=part.device, dtype=torch.int64)
            total += int((part * (weights * 2 + 1) * 0x5851F42D4C957F2D).sum())
        return f"{total & 0xFFFFFFFFFFFFFFFF:016x}"

    def forget_reference(self) -> None:
        self._reference.clear()
        self._bounds.clear()

    # ---- baselines ----------------------------------------------------------------------------------------------

    def baseline(self, name: str) -> tuple[list[Offer], str]:
        """Ways to do it, the fastest of which is the baseline; or none, and why."""
        if name == "copy":
            return self._copies_of_the_same_bytes(), ""
        if self._torch is None:
            return [], "torch with a GPU is not here"
        if name == "triton":
            return self._triton()
        calls = []
        for tensors in self._tensors:
            found = self.workload.library(self.case, tensors, whole=name == "library_whole")
            if found is None:
                return [], "the library has no such product"
            label, call = found
            calls.append(self._on_stream(call))
        return [Offer(label, calls)], ""

    def _on_stream(self, call: Callable[[], None]) -> Work:
        torch = self._torch

        def work(stream: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(int(stream))):
                call()

        return work

    def _triton(self) -> tuple[list[Offer], str]:
        """Each of the configurations that are offered."""
        triton = _module("triton")
        if triton is None:
            return [], "triton is not here"
        sms = self._device.info.sms
        copies = [self.workload.triton_products(self.case, tensors, sms) for tensors in self._tensors]
        if not copies[0]:
            return [], "no product of this kind is written in Triton here"
        version = f"Triton {triton.__version__}, best of {len(copies[0])}"
        return [
            Offer(f"{version}: {same[0][0]}", [self._on_stream(call) for _, call in same])
            for same in zip(*copies, strict=True)
        ], ""

    def _copies_of_the_same_bytes(self) -> list[Offer]:
        """Copies that read and write as many bytes as the problem has to move, half of them each way: cudaMemcpy, and a
        kernel of torch that writes what it reads negated, because some sizes find the former slow."""
        size = max(512, self.workload.least_bytes(self.case) // 2 // 256 * 256)
        wanted = ROTATION_OF_L2 * self._device.info.limits["l2_bytes"]
        count = max(MIN_COPIES, min(MAX_COPIES, -(-wanted // (2 * size))))
        pairs = [(self._device.allocate(size), self._device.allocate(size)) for _ in range(count)]
        self._own += [each for pair in pairs for each in pair]
        for source, target in pairs:
            self._device.fill(source, 0x5A)
            self._device.fill(target, 0)
        offers = [
            Offer(
                f"cudaMemcpy of {size} bytes",
                [partial(self._device.copy_async, target.address, source.address, size) for source, target in pairs],
            )
        ]
        if self._torch is not None:
            torch, device = self._torch, f"cuda:{self._index}"
            tensors = [[torch.as_tensor(each, device=device).view(torch.int32) for each in pair] for pair in pairs]
            kernels = [self._on_stream(partial(torch.neg, source, out=target)) for source, target in tensors]
            offers.append(Offer(f"an elementwise kernel of torch over {size} bytes", kernels))
        return offers


def state_of(readings: Sequence[Reading]) -> State:
    """Medians of what was read."""

    def middle(values: list[float]) -> float | None:
        return float(median(values)) if values else None

    return State(
        sm_mhz=middle([each.sm_mhz for each in readings if each.sm_mhz is not None]),
        watts=middle([each.watts for each in readings if each.watts is not None]),
        celsius=middle([each.celsius for each in readings if each.celsius is not None]),
        held_by=sorted({reason for each in readings for reason in each.held_by}),
    )


@contextmanager
def _blamed(entry: Entry) -> Iterator[None]:
    """Errors inside carry the entry's name, so that the parent can go on without it."""
    try:
        yield
    except AdvisorError as error:
        error.numbers["entry"] = entry.name
        raise


def _each(works: Sequence[Work], stream: Any) -> None:
    for work in works:
        work(stream)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _torch_with_gpu() -> Any:
    torch = _module("torch")
    return torch if torch is not None and torch.cuda.is_available() else None
