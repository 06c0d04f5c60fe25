"""Bundles for an H200 and a B200 with images of no content, and the GPUs as the parent would read them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from advisor.accept import Accepted, accept_bundle
from advisor.accept.drive import Target
from advisor.bundle import BuildUnit, Bundle, read_bundle, units, write_build, write_bundle
from advisor.codegen.render import render_bundle
from advisor.kinds import workload
from advisor.machine import load_profile
from advisor.planner import plan
from advisor.problem import parse_problem
from advisor.runtime import DeviceInfo
from advisor.toolchain import Unit, kernel_hash

BACKENDS = Path(__file__).with_name("backends.py")
CASES = ("own_shape", "clusters_fewer", "clusters_waves", "k_deep")
CHIPS = {"h200": ("NVIDIA H200", (9, 0)), "b200": ("NVIDIA B200", (10, 0))}


def target(name: str) -> Target:
    profile = load_profile(name)
    title, capability = CHIPS[name]
    info = DeviceInfo(
        index=0,
        name=title,
        compute_capability=capability,
        uuid_hash="0" * 16,
        driver="580.00",
        cuda="13.0",
        sms=profile.sms,
        memory_bytes=1 << 37,
        limits={"sms": profile.sms},
    )
    return Target(info, profile)


@dataclass(frozen=True)
class FakeImage:
    """What a compiler gives, without one."""

    kernel_hash: str
    ptx: str = "ptx"
    cubin: bytes = b"cubin"
    registers: int = 32
    static_smem_bytes: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    ptx_sha256: str = hashlib.sha256(b"ptx").hexdigest()
    cubin_sha256: str = hashlib.sha256(b"cubin").hexdigest()
    compiler: str = "none"
    cached: bool = False
    sass: Mapping[str, int] = field(default_factory=dict)


def build(rows: list[BuildUnit]) -> list[Any]:
    """With the hashes of the real sources."""
    return [FakeImage(kernel_hash(Unit(r.name, r.source, r.headers, r.target, r.defines, r.flags))) for r in rows]


def make_bundle(folder: Path, name: str, fields: str) -> Bundle:
    problem = parse_problem(f"kind: gemm\nname: small\nm: 512\nn: 512\nk: 128\n{fields}\n", "problem.yaml")
    work = workload(problem)
    profile, hopper = load_profile(name), load_profile("h200")
    profiles: Any = {"sm100": profile, "sm90": hopper, "portable": profile}
    made = plan(work, profile, target_name=name, target_source="profile", rung_profiles=profiles)
    rendered = render_bundle(made, work)
    bundle = read_bundle(write_bundle(folder / rendered.name, rendered))
    write_build(
        bundle, {(r.kernel_id, r.target): image for r, image in zip(units(bundle), build(units(bundle)), strict=True)}
    )
    return bundle


@dataclass(frozen=True)
class Site:
    """A machine with one GPU and one bundle."""

    bundle: Bundle
    target: Target
    folder: Path

    def accept(self, backend: str, **options: Any) -> Accepted:
        values: dict[str, Any] = {
            "target": self.target,
            "build": build,
            "backend": f"{BACKENDS}:{backend}",
            "output": self.folder / backend,
            "timeout_s": 1.0,
            "cases": CASES,
            **options,
        }
        return accept_bundle(self.bundle.folder, **values)


@pytest.fixture(scope="session")
def make_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Site]:
    """make_site("b200"): CLC on pairs. make_site("h200"): a static kernel on clusters of two."""
    schedules = {"b200": "clc", "h200": "static"}

    def make(name: str) -> Site:
        folder = tmp_path_factory.mktemp(name)
        fields = f"overrides: {{schedule: {schedules[name]}, cluster: [2, 1, 1], tile: [128, 128, 64]}}"
        return Site(make_bundle(folder, name, fields), target(name), folder / "results")

    return make
