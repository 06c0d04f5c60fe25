"""Every way in which one step of a kernel's protocol is left out or done wrong, as edits of its PTX text.

A step is a fence, a wait, an arrival, a count of arrivals or bytes, a copy or a store that brings them, a mask, a
commit, a step of Cluster Launch Control, the choice of a CTA of a pair, an allocation of tensor memory, or registers
that a warpgroup gives or takes. Each edit touches one instruction, or the two halves of a cluster barrier. Pure text:
nothing here runs a kernel or imports the emulator.

Not mutated: bar.warp.sync as a whole, which compilers and authors put in for convergence more than for order (its mask
is); the order of an arrive.expect_tx, whose bytes bring their own; the order of a cluster barrier's arrival, of which
most only count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ROOTS = (
    "fence|membar|mbarrier|bar|barrier|cp|st(?=[.]async)|wgmma|tcgen05|clusterlaunchcontrol|griddepcontrol|elect|shfl"
    "|vote|redux|mapa|setmaxnreg"
)
_PEER_BIT = 1 << 24  # of a shared address: which CTA of a pair
_TO_EVEN = r"and\.b32(?=[^;]*,\s*-167772(?:1[7-9]|2[0-4])\s*;)"  # clears it, and at most the three lowest bits
_INSTRUCTION = re.compile(
    rf"(?P<guard>@!?[%$\w]+\s+)?(?<![\w.%$])(?P<opcode>(?:(?:{_ROOTS})(?:\.[\w:]+)*)(?=[\s;])|{_TO_EVEN})"
    r"(?P<operands>[^;]*);"
)
_TRUE = "setp.eq.u32 {0}, 0, 0;"
_FALSE = "setp.ne.u32 {0}, 0, 0;"


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of the protocol: what it is, the which-th of its kind, and where it stands in the text."""

    opcode: str
    ordinal: int
    guard: str
    operands: tuple[str, ...]
    start: int
    end: int

    def spelled(self, *operands: str, opcode: str = "") -> str:
        """The instruction with other operands, or another opcode."""
        return f"{self.guard}{opcode or self.opcode} {', '.join(operands or self.operands)};"

    def has(self, *qualifiers: str) -> bool:
        return set(qualifiers) <= set(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` is stable as long as the kernel keeps its steps in their order."""

    kind: str
    name: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, ptx: str) -> str:
        return ptx[: self.start] + self.text + ptx[self.end :]


Edit = tuple[str, str]  # what is done, and the text that takes the instruction's place


def mutants(ptx: str) -> list[Mutant]:
    """All mutants of a kernel, in the order of its text."""
    plain = re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), ptx)
    found = []
    steps = list(_steps(plain))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if following is not None and _is_cluster_barrier(step, following, plain):
            name = f"no cluster barrier: {step.opcode} #{step.ordinal}"
            found.append(Mutant("waits", name, _line(plain, step.start), step.start, following.end, ""))
        for kind, edits in _EDITS.items():
            for what, text in edits(step):
                name = f"{what}: {step.opcode} #{step.ordinal}"
                found.append(Mutant(kind, name, _line(plain, step.start), step.start, step.end, text))
    return found


def _line(ptx: str, at: int) -> int:
    return ptx.count("\n", 0, at) + 1


def _is_cluster_barrier(step: Step, following: Step, ptx: str) -> bool:
    """An arrival and a wait with no instruction between: left out one at a time they are misuse, together a gap."""
    between = re.sub(r"\.loc[^\n]*", "", ptx[step.end : following.start])
    return (
        step.opcode.startswith("barrier.cluster.arrive")
        and following.opcode.startswith("barrier.cluster.wait")
        and not between.strip()
    )


def _steps(ptx: str) -> Iterator[Step]:
    seen: Counter[str] = Counter()
    for match in _INSTRUCTION.finditer(ptx):
        opcode = match["opcode"]
        seen[opcode] += 1
        yield Step(
            opcode, seen[opcode], match["guard"] or "", tuple(_operands(match["operands"])), match.start(), match.end()
        )


def _operands(text: str) -> Iterator[str]:
    """Splits at commas outside of brackets and braces."""
    depth, start = 0, 0
    for at, each in enumerate(text):
        depth += (each in "[{(") - (each in "]})")
        if each == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


# --- the edits --------------------------------------------------------------------------------------------------------


def _fences(step: Step) -> Iterator[Edit]:
    root = step.opcode.split(".")[0]
    if root in ("fence", "membar") or step.opcode.startswith(("wgmma.fence", "tcgen05.fence")):
        yield "no fence", ""
        yield from _narrower(step)


def _narrower(step: Step) -> Iterator[Edit]:
    """The scope or the semantics of an operation made weaker."""
    for wide, narrow in ((".gpu", ".cta"), (".cluster", ".cta"), (".gl", ".cta")):
        if re.search(rf"\{wide}(?![\w:])", step.opcode):
            if "mbarrier_init" not in step.opcode and "proxy" not in step.opcode and "relaxed" not in step.opcode:
                yield "scope of the CTA", step.spelled(opcode=re.sub(rf"\{wide}(?![\w:])", narrow, step.opcode))
            break


def _relaxed(step: Step) -> Iterator[Edit]:
    """An mbarrier operation that neither releases nor acquires. Without qualifiers it does, within the CTA."""
    if step.has("relaxed"):
        return
    for strong in ("release", "acquire"):
        if step.has(strong):
            yield "relaxed", step.spelled(opcode=step.opcode.replace(f".{strong}", ".relaxed"))
            return
    first, rest = re.match(r"(mbarrier\.\w+(?:\.parity)?(?:\.expect_tx)?)(.*)", step.opcode).groups()  # type: ignore[union-attr]
    yield "relaxed", step.spelled(opcode=f"{first}.relaxed.cta{rest}")


def _waits(step: Step) -> Iterator[Edit]:
    if step.has("try_wait") or step.has("test_wait"):
        done, address, phase, *rest = step.operands
        yield "no wait", f"{step.guard}{_TRUE.format(done)}"
        yield from _next_barrier(step)
        if step.has("parity"):
            yield "the other parity", _with_register(step, "b32", "xor", phase, 1, (done, address), tuple(rest))
        yield from _relaxed(step)
        yield from _narrower(step)
    elif step.has("wait_group"):
        (count,) = step.operands
        yield "no wait", ""
        yield "a group more may be pending", step.spelled(str(int(count) + 1))
    elif step.opcode.startswith(_WAITS):
        yield "no wait", ""
    elif _is_barrier(step, "sync"):
        yield "no barrier", ""


_WAITS = ("cp.async.wait_all", "tcgen05.wait", "griddepcontrol.wait", "barrier.cluster.wait")


def _is_barrier(step: Step, how: str) -> bool:
    """A barrier of the CTA."""
    return step.opcode.split(".")[0] in ("bar", "barrier") and step.has(how) and not step.has("warp")


def _arrivals(step: Step) -> Iterator[Edit]:
    if step.opcode.startswith(("mbarrier.arrive", "cp.async.mbarrier.arrive")):
        yield "no arrival", ""
        yield "two arrivals", f"{step.spelled()} {step.spelled()}"
        yield from _next_barrier(step)
        if step.opcode.startswith("mbarrier") and not step.has("expect_tx"):
            yield from _relaxed(step)
            yield from _narrower(step)
    elif step.opcode.startswith("barrier.cluster.arrive") or _is_barrier(step, "arrive"):
        yield "no arrival", ""


def _counts(step: Step) -> Iterator[Edit]:
    """How many arrivals and bytes an mbarrier waits for, and which come; how many threads a barrier."""
    if step.opcode.startswith("mbarrier.init"):
        yield "no initialisation", ""
        yield from _next_barrier(step)
        for amount in (1, -1):
            what = "an arrival more" if amount > 0 else "an arrival fewer"
            yield what, _with_register(step, "s32", "add", step.operands[1], amount, step.operands[:1])
    elif step.has("expect_tx"):
        *before, bytes_ = step.operands
        yield "16 bytes more", _with_register(step, "s32", "add", bytes_, 16, tuple(before))
        yield "16 bytes fewer", _with_register(step, "s32", "add", bytes_, -16, tuple(before))
        if step.has("arrive"):
            yield "no bytes", step.spelled(*before, opcode=step.opcode.replace(".expect_tx", ""))
        else:
            yield "no bytes", ""
    elif (_is_barrier(step, "sync") or _is_barrier(step, "arrive")) and len(step.operands) == 2:
        barrier, threads = step.operands
        yield "a warp more", _with_register(step, "s32", "add", threads, 32, (barrier,))
    elif step.opcode.startswith("cp.async.bulk") and step.has("mbarrier::complete_tx::bytes"):
        yield "no copy", ""
        yield "two copies", f"{step.spelled()} {step.spelled()}"
        yield from _next_barrier(step)
    elif step.opcode.startswith(("cp.async.ca", "cp.async.cg")):  # nothing counts these: a second one does no harm
        yield "no copy", ""
    elif step.opcode.startswith("st.async"):
        yield "no store", ""
        yield "two stores", f"{step.spelled()} {step.spelled()}"
        yield from _next_barrier(step)
        yield from _further(step, 0, 8, "8 bytes further")


def _masks(step: Step) -> Iterator[Edit]:
    if step.has("multicast::cluster"):
        mask, *rest = reversed(step.operands[1:])
        at = len(step.operands) - 1
        if step.has("L2::cache_hint"):
            mask, at = rest[0], at - 1
        before, after = step.operands[:at], step.operands[at + 1 :]
        yield "a mask without its lowest CTA", _masked(step, mask, before, after, "and", "sub")
        yield "a mask with the next CTA", _masked(step, mask, before, after, "or", "add")
    elif step.operands and step.operands[-1] in _FULL:  # of a shuffle, a vote, an election, a barrier of the warp
        yield "a mask without a lane", step.spelled(*step.operands[:-1], "0x7fffffff")


_FULL = ("-1", "0xffffffff", "0xFFFFFFFF", "4294967295")


def _commits(step: Step) -> Iterator[Edit]:
    if step.has("commit_group"):
        yield "no commit", ""
    elif step.opcode.startswith("tcgen05.commit"):
        yield "no commit", ""
        yield "two commits", f"{step.spelled()} {step.spelled()}"
        yield from _next_barrier(step)
        if step.has("multicast::cluster"):
            plain = step.opcode.replace(".multicast::cluster", "")
            yield "a commit to this CTA alone", step.spelled(*step.operands[:-1], opcode=plain)


def _requests(step: Step) -> Iterator[Edit]:
    if step.has("try_cancel"):
        yield "no request", ""
        yield "two requests", f"{step.spelled()} {step.spelled()}"
        yield from _next_barrier(step)
        yield from _further(step, 0, 16, "a response 16 bytes further")
        if step.has("multicast::cluster::all"):
            yield "a request of one CTA", step.spelled(opcode=step.opcode.replace(".multicast::cluster::all", ""))
    elif step.has("is_canceled"):
        answer = step.operands[0]
        yield "granted, whatever the answer", f"{step.spelled()} {_TRUE.format(answer)}"
        yield "declined, whatever the answer", f"{step.spelled()} {_FALSE.format(answer)}"
    elif step.has("query_cancel"):
        yield "no coordinates", ""


def _pairs(step: Step) -> Iterator[Edit]:
    """One CTA or two, and which of the two: what an instruction is issued for, and whose barrier it names."""
    if step.has("cta_group::2"):
        if step.opcode.startswith("cp."):  # a copy may signal a barrier of the peer
            yield "of one CTA", step.spelled(opcode=step.opcode.replace(".cta_group::2", ""))
        else:
            yield "of one CTA", step.spelled(opcode=step.opcode.replace("cta_group::2", "cta_group::1"))
    elif step.has("cta_group::1"):
        yield "of a pair", step.spelled(opcode=step.opcode.replace("cta_group::1", "cta_group::2"))
    elif step.opcode.startswith("mapa.shared"):
        yield "in this CTA", f"{step.guard}mov.b32 {step.operands[0]}, {step.operands[1]};"
        yield "in its neighbour", _with_register(step, "b32", "xor", step.operands[2], 1, step.operands[:2])
    elif step.opcode == "and.b32":
        *before, mask = step.operands
        yield "in this CTA", step.spelled(*before, str(int(mask) | _PEER_BIT))


def _threads(step: Step) -> Iterator[Edit]:
    """Who does it: one thread is elected, or named by a predicate."""
    if step.guard:
        yield "by every thread", f"{step.opcode} {', '.join(step.operands)};"
    if step.opcode == "elect.sync":
        elected = step.operands[0].split("|")[-1].strip()
        yield "every lane elected", f"{step.spelled()} {_TRUE.format(elected)}"
        yield "no lane elected", f"{step.spelled()} {_FALSE.format(elected)}"


def _tensor_memory(step: Step) -> Iterator[Edit]:
    if step.opcode.startswith("tcgen05.alloc"):
        yield "no allocation", ""
        yield "half of the columns", _with_register(step, "b32", "shr", step.operands[1], 1, step.operands[:1])
        group = "cta_group::2" if step.has("cta_group::2") else "cta_group::1"
        early = step.spelled(" ", opcode=f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned")
        yield "the permit given up first", f"{early} {step.spelled()}"
    elif step.opcode.startswith("tcgen05.dealloc"):
        yield "no deallocation", ""
        yield "half of the columns", _with_register(step, "b32", "shr", step.operands[1], 1, step.operands[:1])
        yield "two deallocations", f"{step.spelled()} {step.spelled()}"
    elif step.opcode.startswith("tcgen05.relinquish"):
        yield "the permit kept", ""


def _registers(step: Step) -> Iterator[Edit]:
    """A warpgroup that takes none is only slower, so that is no mutant."""
    if step.opcode.startswith("setmaxnreg"):
        yield "8 registers more", step.spelled(str(int(step.operands[0]) + 8))
        if step.has("dec"):
            yield "no registers given back", ""


_EDITS: dict[str, Callable[[Step], Iterator[Edit]]] = {
    "fences": _fences,
    "waits": _waits,
    "arrivals": _arrivals,
    "counts": _counts,
    "masks": _masks,
    "commits": _commits,
    "requests": _requests,
    "pairs": _pairs,
    "threads": _threads,
    "tensor memory": _tensor_memory,
    "registers": _registers,
}
KINDS = tuple(_EDITS)


_ADDRESS = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(\d+)\s*)?\]")


def _next_barrier(step: Step) -> Iterator[Edit]:
    """The mbarrier 8 bytes further: of the next stage, or what lies behind the last one."""
    behind_its_address = step.has("try_cancel") or step.opcode.startswith("st.async")
    which = 2 if step.opcode.startswith("cp.async.bulk") else 1 if behind_its_address else 0
    yield from _further(step, which, 8, "at the next mbarrier")


def _further(step: Step, which: int, by: int, what: str) -> Iterator[Edit]:
    """Another address in place of the which-th one."""
    at = [at for at, each in enumerate(step.operands) if each.startswith("[")][which]
    address = _ADDRESS.fullmatch(step.operands[at])
    if address is not None:
        further = f"[{address[1]}+{int(address[2] or 0) + by}]"
        yield what, step.spelled(*step.operands[:at], further, *step.operands[at + 1 :])


def _with_register(
    step: Step,
    kind: str,
    operation: str,
    operand: str,
    amount: int,
    before: tuple[str, ...],
    after: tuple[str, ...] = (),
) -> str:
    """The instruction with one operand changed by an amount."""
    spelled = step.spelled(*before, "mutant", *after)
    return f"{{ .reg .{kind} mutant; {operation}.{kind} mutant, {operand}, {amount}; {spelled} }}"


def _masked(step: Step, mask: str, before: tuple[str, ...], after: tuple[str, ...], join: str, step_by: str) -> str:
    """`and` with the mask less one clears its lowest bit; `or` with the mask plus itself adds the next one."""
    other = "1" if step_by == "sub" else "mutant"
    spelled = step.spelled(*before, "mutant", *after)
    return (
        f"{{ .reg .b16 mutant; .reg .b16 changed; mov.b16 mutant, {mask}; {step_by}.s16 changed, mutant, {other}; "
        f"{join}.b16 mutant, mutant, changed; {spelled} }}"
    )
