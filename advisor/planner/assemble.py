"""`plan`: every rung of the ladder picked, the nine views taken, one record out. Imports the planner's other modules.

Touches no GPU, no file and no clock. A refusal is a plan with the verdict `refuse` and error findings.

Rules that are stated here and nowhere else
-------------------------------------------
- Overrides bind the family they name, else the best one that takes the operands; the rungs below are planned freely.
  A family that is named and does not take the operands is refused: the next one is not what was asked for.
- What the *machine* cannot give of a forced cluster is stepped down (16 to 8 to 4 ...), and a pair without tcgen05 is
  dropped, each with a finding; what a *constraint* or a kernel forbids is refused.
- An operand that TMA cannot take sends the problem down the ladder with the pad that would mend it.
- `fallback: required` asks for a portable rung that honours every override; where there is none, nothing is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from advisor.kinds.words import cluster_words, show
from advisor.kinds.workload import Measurements, Occupancy, Search, Workload
from advisor.machine.profile import DeviceProfile
from advisor.planner import (
    counts,
    step1_necessity,
    step2_mapping,
    step3_sharing,
    step4_residency,
    step5_barriers,
    step6_schedule,
    step7_clc,
    step8_tail,
    step9_fallback,
)
from advisor.planner.context import Facts, fit_of, kernel_id, residency_rows, sms_under
from advisor.planner.remarks import remarks
from advisor.planner.search import Rung, choose, rejected_counts, rung_at
from advisor.records.candidate import Family
from advisor.records.plan import (
    PTXAS,
    Alternative,
    Choice,
    ClusterResidency,
    Experiment,
    Finding,
    Plan,
    Prediction,
    Residency,
    Target,
    Tile,
    Verdict,
)
from advisor.records.rows import Violation
from advisor.records.work import record_type

STEPS = (
    step1_necessity,
    step2_mapping,
    step3_sharing,
    step4_residency,
    step5_barriers,
    step6_schedule,
    step7_clc,
    step8_tail,
    step9_fallback,
)
SPREAD = {"tensor": 0.15}  # a prediction is stated within this: docs/planner.md has the measured errors
WIDE_SPREAD = 0.4  # of what latency and bandwidth bound
MEASURED_SPREAD = 0.015  # one run to the next; the margin of the tie rule
MACHINE_LIMITS = ("ZERO_ACTIVE_CLUSTERS", "MAX_CLUSTER_8", "CLUSTER_OVER_16", "NO_CLUSTERS")
EXAMPLES = 3
INDISTINCT = 1e-3  # margins below it are the same prediction


class _Refused(Exception):
    """Inside this module: nothing serves the request."""

    def __init__(self, code: str, message: str, numbers: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, severity="error", message=message, numbers=dict(numbers))


def plan(
    workload: Workload,
    target: DeviceProfile,
    *,
    target_name: str,
    target_source: Literal["profile", "device"],
    rung_profiles: Mapping[Family, DeviceProfile],
    occupancy: Occupancy | None = None,
    measurements: Measurements | None = None,
) -> Plan:
    """The plan of a workload for a target.

    `rung_profiles` has the profile that each family is planned for; `occupancy` answers for built kernels, and what it
    answers stands over the formula. `measurements` are times of this very problem on the GPUs of those profiles: each
    stands over the prediction of its candidate, in the ranking, under the same tie rule. A candidate is all of its
    fields, the raster too; times of candidates that the search does not hold are counted in `not_verified`.
    """
    about = Target(name=target_name, arch=target.arch, profile=target.name, source=target_source)
    nothing = workload.empty()
    if nothing is not None:
        return _no_launch(workload, about, nothing)
    findings = list(workload.findings(target))
    try:
        rungs, verdict = _ladder(workload, target, rung_profiles, occupancy, measurements, findings)
    except _Refused as refused:
        return _refusal(workload, about, [*findings, refused.finding])
    if verdict == "plan" and any(each.severity == "warning" for each in findings):
        verdict = "adjust"
    top, free = rungs[0], None
    if workload.forces():
        search = workload.explore(top.profile, top.family, forced=False, occupancy=occupancy, measurements=measurements)
        free = choose(workload, search)
    facts = Facts(workload, target, tuple(rungs))
    findings += remarks(facts, free, target_source)
    choices = [_choice(facts, rung) for rung in rungs]
    alternatives = _alternatives(facts)
    return Plan(
        problem=workload.document,
        target=about,
        verdict=verdict,
        conclusion=_conclusion(facts, verdict),
        choices=choices,
        choice=choices[0],
        steps=[step.view(facts) for step in STEPS],
        findings=findings,
        alternatives=alternatives,
        experiment=_experiment(facts, alternatives),
        not_verified=_not_verified(facts, target_source, len(measurements or {})),
        counts=counts.view(workload, top, choices[0]),
    )


# ---- the ladder ----------------------------------------------------------------------------------------------------


def _ladder(
    workload: Workload,
    target: DeviceProfile,
    profiles: Mapping[Family, DeviceProfile],
    occupancy: Occupancy | None,
    measurements: Measurements | None,
    findings: list[Finding],
) -> tuple[list[Rung], Verdict]:
    limits, forced = workload.limits(), dict(workload.forces())
    families = list(workload.families(target))
    named = limits["kernel"]
    if named is not None:
        if named not in families:
            raise _missing_family(named, target)
        families = families[families.index(named) :]
    verdict: Verdict = "plan"
    rungs: list[Rung] = []
    refusal: _Refused | None = None
    for family in families:
        profile = profiles[family]
        bound = not rungs and bool(forced)
        overrides: dict[str, Any] = {}
        search = workload.explore(profile, family, forced=bound, occupancy=occupancy, measurements=measurements)
        rung = choose(workload, search)
        while rung is None and bound:
            step = _step_down(workload, forced, overrides, rejected_counts(search), profile)
            if step is None:
                break
            overrides, finding = step
            findings.append(finding)
            verdict = "fallback"
            search = workload.explore(
                profile, family, forced=True, occupancy=occupancy, overrides=overrides, measurements=measurements
            )
            rung = choose(workload, search)
        if rung is not None:
            rungs.append(rung)
            continue
        reasons = search.reasons
        operand = [each for each in reasons if each.code in workload.operand_codes]
        if bound and refusal is None:
            refusal = _forced_refusal(workload, search, forced, family)
        if not operand:
            raise refusal or _nothing_legal(search, family)
        if family == named:
            raise _named_refusal(named, operand[0])
        if not rungs:
            verdict = "adjust"
            findings.extend(_down(operand, family, findings))
    if not rungs:
        raise refusal or _Refused(
            "NOTHING_LEGAL", "no kernel family serves this problem on this target", {"families": families}
        )
    if limits["fallback"] == "required":
        _require_fallback(workload, profiles, forced, named, rungs)
    return rungs, verdict


def _down(operand: list[Violation], family: Family, known: list[Finding]) -> list[Finding]:
    """One finding for each operand that the family cannot take."""
    seen = {(each.code, each.numbers.get("operand")) for each in known}
    found = []
    for each in operand:
        key = (each.code, each.numbers.get("operand"))
        if key in seen:
            continue
        seen.add(key)
        found.append(
            Finding(
                code=each.code,
                severity="warning",
                message=f"{each.message}; until then the {family} kernels decline and the next family serves",
                numbers=dict(each.numbers),
            )
        )
    return found


def _step_down(
    workload: Workload,
    forced: Mapping[str, Any],
    overrides: Mapping[str, Any],
    rejected: list[tuple[str, int, str]],
    profile: DeviceProfile,
) -> tuple[dict[str, Any], Finding] | None:
    """The next weaker override where the machine is what stands in the way, with the finding; None: refuse."""
    current = {**forced, **overrides}
    codes = {code: text for code, _, text in rejected}
    own = workload.weaker(current, profile)
    if own is not None:
        return {**overrides, **own[0]}, own[1]
    cluster = current.get("cluster")
    code = next((each for each in MACHINE_LIMITS if each in codes), None)
    if cluster is None or code is None or all(side == 1 for side in cluster):
        return None
    sides = list(cluster)
    widest = max(range(3), key=lambda axis: sides[axis])
    sides[widest] = max(1, sides[widest] // 2)
    size = sides[0] * sides[1] * sides[2]
    before = cluster[0] * cluster[1] * cluster[2]
    finding = Finding(
        code=code,
        severity="warning",
        message=f"cluster {show(cluster)} of {before}: {codes[code]}; stepped down to {show(tuple(sides))}",
        numbers={"asked": list(cluster), "cluster_size": size, "step": [before, size], "max_active_clusters": 0},
    )
    return {**overrides, "cluster": tuple(sides)}, finding


def _missing_family(named: str, target: DeviceProfile) -> _Refused:
    code = "NO_TCGEN05" if named == "sm100" else "NO_WGMMA"
    feature = "tcgen05" if named == "sm100" else "wgmma"
    return _Refused(
        code,
        f"kernel {named} is forced, and {target.title} ({target.arch}) has no {feature}",
        {"kernel": named, "target": target.arch},
    )


def _named_refusal(named: str, broken: Violation) -> _Refused:
    """The kernel that `overrides.kernel` names does not take the operands: another family is not what was asked for."""
    message = f"kernel: {named} is forced and refused: {broken.message}"
    return _Refused(broken.code, message, {**broken.numbers, "kernel": named})


def _forced_refusal(workload: Workload, search: Search, forced: Mapping[str, Any], family: Family) -> _Refused:
    """Why no candidate honours the overrides: the clauses that the free choice breaks once they are put in."""
    names = ", ".join(f"{name}: {show(value)}" for name, value in forced.items())
    free = choose(workload, workload.explore(search.profile, family, forced=False))
    broken: Sequence[Violation] = []
    if free is not None:
        broken = workload.clauses(workload.apply(free.candidate, forced), search.profile)
    if not broken:
        code, _, text = rejected_counts(search)[0]
        broken = [next(each for each in search.reasons if each.code == code and each.message == text)]
    first = broken[0]
    numbers = {**first.numbers, "forced": names, "codes": [each.code for each in broken]}
    return _Refused(
        first.code,
        f"{names} {'is' if len(forced) == 1 else 'are'} forced on {family} and refused: {first.message}",
        numbers,
    )


def _nothing_legal(search: Search, family: Family) -> _Refused:
    code, count, text = rejected_counts(search)[0]
    numbers = next((dict(each.numbers) for each in search.reasons if each.code == code), {})
    return _Refused(code, f"no candidate of {family} is legal: {text}", {**numbers, "candidates": count})


def _require_fallback(
    workload: Workload,
    profiles: Mapping[Family, DeviceProfile],
    forced: Mapping[str, Any],
    named: str | None,
    rungs: list[Rung],
) -> None:
    """Raise unless a portable kernel honours every override: the path must run identically off this GPU."""
    if named in ("sm100", "sm90"):
        raise _Refused(
            "FALLBACK_REQUIRED",
            f"fallback is required and kernel {named} is forced: it runs on one architecture only",
            {"kernel": named},
        )
    if rungs[-1].family != "portable":
        raise _Refused("FALLBACK_REQUIRED", "fallback is required and no portable kernel serves the problem", {})
    if forced and rungs[0].family != "portable":
        search = workload.explore(profiles["portable"], "portable", forced=True)
        if choose(workload, search) is None:
            code, _, text = rejected_counts(search)[0]
            names = ", ".join(f"{name}: {show(value)}" for name, value in forced.items())
            raise _Refused(
                "FALLBACK_REQUIRED",
                f"fallback is required and {names} has no path off this GPU: {text}",
                {"forced": names, "clause": code},
            )


# ---- records -------------------------------------------------------------------------------------------------------


def _choice(f: Facts, rung: Rung) -> Choice:
    c, timing, r = rung.candidate, rung.timing, rung.resources
    fit = max(1, fit_of(rung))
    used = sms_under(rung, timing.resident, c.cluster_size)
    clusters = min(timing.tiles, timing.planned)
    workers = max(1, timing.available)
    if timing.tiles > timing.planned:  # a persistent grid smaller than the GPU turns more often
        workers = max(1, min(timing.planned, timing.available))
    waves = timing.tiles / workers
    last = timing.tiles % workers or workers
    k = c.tile[2]
    spread = MEASURED_SPREAD if rung.evidence == "measured" else SPREAD.get(timing.bound, WIDE_SPREAD)
    derived = {
        "max_active_clusters": sum_of(rung),
        "threads": r.threads,
        "registers": r.registers,
        "smem_bytes": r.static_smem_bytes + r.dynamic_smem_bytes,
        "ctas_per_sm": fit,
        "cluster_size": c.cluster_size,
    }
    return Choice(
        kernel_id=kernel_id(c),
        family=c.family,
        profile=rung.profile.name,
        cluster=c.cluster,
        nonportable=c.nonportable,
        schedule=c.schedule,
        stages=c.stages,
        threads=r.threads,
        smem_bytes=r.dynamic_smem_bytes,
        tmem_columns=r.tmem_columns,
        registers_budget=r.registers,
        tile=Tile(cta=c.tile, cluster=(*c.cluster_tile, k), problem=c.work.problem_tile(c)),
        grid_blocks=clusters * c.cluster_size,
        grid_clusters=clusters,
        work=record_type(f.workload.kind).of(c.work),
        residency=Residency(
            derived=derived,
            queried=_queried(rung),
            max_active_clusters=timing.resident,
            sms_used=used,
            sms_idle=rung.profile.sms - used,
            by_cluster_size=[
                ClusterResidency(
                    cluster_size=size,
                    max_active_clusters=timing.resident if size == c.cluster_size else count,
                    sms_used=used if size == c.cluster_size else sms,
                    sms_idle=rung.profile.sms - (used if size == c.cluster_size else sms),
                    nonportable=nonportable,
                )
                for size, count, sms, _, nonportable in residency_rows(rung)
            ],
        ),
        prediction=Prediction(
            time_us=rung.time_us,
            low_us=rung.time_us * (1.0 - spread),
            high_us=rung.time_us * (1.0 + spread),
            bound=timing.bound,
            waves=waves,
            last_wave_use=last / max(workers, timing.available),
            evidence=rung.evidence,
        ),
        trigger=step9_fallback.trigger(rung, f.tma_operands(rung)),
    )


def sum_of(rung: Rung) -> int:
    """The formula's clusters at the pick's footprint and size."""
    from advisor.machine.occupancy import clusters_that_fit

    return clusters_that_fit(rung.profile, fit_of(rung), rung.candidate.cluster_size)


def _queried(rung: Rung) -> dict[str, Any] | None:
    facts = rung.search.queried(rung.row)
    return None if facts is None else {"max_active_clusters": rung.timing.resident, **facts}


def _alternatives(f: Facts) -> list[Alternative]:
    """The best pick under each other cluster size, schedule, MMA form, tile and count of stages, nearest first, no two
    alike. What the model cannot tell from the choice comes last: an experiment against it could refute nothing."""
    top, found, seen = f.top, [], {f.top.candidate}
    names = {"stages": f.unit.ring}
    rows = [
        (
            abs(each.margin) < INDISTINCT,
            each.margin,
            f"{names.get(axis, axis.replace('_', ' '))} {show(each.label)}",
            each.row,
        )
        for axis in top.search.roles.alternatives
        for each in f.axis(axis)[:4]
        if each.row is not None and each.label != top.label(axis)
    ]
    for _, margin, label, row in sorted(rows, key=lambda each: each[:2]):
        rung = rung_at(f.workload, top, row)
        if rung is None or rung.candidate in seen:
            continue
        seen.add(rung.candidate)
        found.append(Alternative(label=label, margin=margin, choice=_choice(f, rung)))
        if len(found) == EXAMPLES:
            break
    return found


def _experiment(f: Facts, alternatives: list[Alternative]) -> Experiment | None:
    """The choice against its nearest rival, else against its own single CTAs; None where it is these."""
    top = f.top
    other = alternatives[0] if alternatives else None
    if other is None and top.candidate.cluster_size == 1 and top.candidate.schedule == "one_tile":
        return None
    against = "its one-tile single-CTA twin"
    ahead = ""
    if other:
        c = other.choice.candidate()
        against = f"{other.choice.kernel_id} with {c.part} per CTA and {c.stages} {c.unit_words.ring} ({other.label})"
        ahead = f", {abs(other.margin):.1%} {'ahead of' if other.margin >= 0 else 'behind'} it"
    return Experiment(
        question=f"Is {kernel_id(top.candidate)} at least as fast as {against}?",
        hypothesis=f"the choice takes {top.time_us:.4g} us{ahead}; it is bound by "
        f"{f.workload.bounds[top.timing.bound]}",
        command="advisor validate BUNDLE --device cuda --experiment ab",
        confirms_if="the choice's median is no more than 1.5 % above the alternative's, interleaved in one run",
        refutes_if="the alternative is more than 1.5 % faster in the same run",
    )


def _not_verified(f: Facts, source: str, measurements: int) -> list[str]:
    top = f.top
    rows = []
    used = sum(len(rung.search.measured) for rung in f.rungs)
    if used < measurements:
        rows.append(f"{measurements - used} of {measurements} measured times are of no candidate of this search")
    if top.search.queried(top.row) is None:
        rows.append("residency comes from the profile's formula, not from a query of the built kernel")
    if source == "profile":
        rows.append(
            f"nothing was measured or queried on the machine at hand: {top.profile.title} is a profile, "
            "whose table says where each of its numbers comes from"
        )
    if top.evidence != "measured":
        rows.append("times are predictions of the cost model; only the experiment measures them")
    rows.append(PTXAS)
    return rows


def _conclusion(f: Facts, verdict: Verdict) -> str:
    top, c = f.top, f.top.candidate
    how = {
        "one_tile": f"one {f.unit.one} per {'cluster' if c.cluster_size > 1 else 'CTA'}",
        "static": "a static persistent loop",
        "ticket": "a persistent loop over atomic tickets",
        "clc": "a persistent loop with Cluster Launch Control",
    }[c.schedule]
    cluster = "no cluster" if c.cluster_size == 1 else f"a cluster of {cluster_words(c)}"
    beside_cluster, beside_schedule = c.work.says()
    text = (
        f"Use {kernel_id(c)}: {c.part} per CTA, {cluster}{beside_cluster}, {how}{beside_schedule}; "
        f"{'measured' if top.evidence == 'measured' else 'predicted by the model:'} {top.time_us:.4g} us on "
        f"{top.profile.title}, {top.timing.bound} bound"
    )
    lead = {
        "adjust": " The request was adjusted, see the findings.",
        "fallback": " This is a fallback, see the findings.",
    }.get(verdict, "")
    return f"{text}. Evidence of the kernel: planned.{lead}"


def _no_launch(workload: Workload, about: Target, why: str) -> Plan:
    return Plan(
        problem=workload.document,
        target=about,
        verdict="noop",
        conclusion=f"Nothing to launch: {why}.",
        choices=[],
        choice=None,
        steps=[],
        findings=[Finding(code="EMPTY_WORK", severity="info", message=why)],
    )


def _refusal(workload: Workload, about: Target, findings: list[Finding]) -> Plan:
    return Plan(
        problem=workload.document,
        target=about,
        verdict="refuse",
        conclusion=f"Refused: {findings[-1].message}.",
        choices=[],
        choice=None,
        steps=[],
        findings=findings,
    )
