"""Faults of tensor memory, tcgen05 and CTA pairs: the rows of the tests beside this package, as faults with twins."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from tests.emulator import test_pairs, test_tcgen05, test_tcgen05_checks
from tests.emulator.faults.model import Arguments, Fault, Routine, settings

SETTING = {"async_policy": "lazy", "seed": 0}
FIELD_CASES = {
    "a peer that frees before the barrier": "K12",
    "a pair's allocation before the peer has started": "K12",
    "two groups in one kernel": "K19",
    "a peer that has left": "K01",
}


def _pairs(arm: str, copy: str, wait: str, *, async_policy: str, seed: int) -> None:
    other_pair = "xor.b32 %r12, %r5, 0x02000000;"
    test_pairs.execute(other_pair + test_pairs.MEET + arm + copy + wait + test_pairs.READ, policy=async_policy)


@cache
def product(group: int) -> Routine:
    return Routine(partial(test_tcgen05_checks.run_one, group), settings=settings(1))


COPIES = Routine(
    _pairs, {"arm": test_pairs.ARM, "copy": test_pairs.ALONE, "wait": test_pairs.WAIT}, settings=settings(1)
)


def _products() -> list[Fault]:
    found = []
    for name, (code, group, changed, options) in test_tcgen05_checks.FAULTS.items():
        fields: dict[str, Any] = {"changed": changed, **options}
        setting = {**SETTING, "async_policy": fields.pop("async_policy", "random")}
        edit = Arguments(fields)
        found.append(Fault(f"tcgen05: {name}", code, product(group), edit, setting, FIELD_CASES.get(name, "")))
    found += [
        Fault(
            f"tcgen05: an instruction descriptor with {name}",
            "EMU_TCGEN05_DESCRIPTOR",
            product(1),
            Arguments({"descriptor": descriptor}),
        )
        for name, (descriptor, _) in test_tcgen05_checks.DESCRIPTORS.items()
    ]
    return found


SCALED = Routine(
    partial(test_tcgen05.scaled, "mxf8f6f4", "e4m3", "e4m3", 1, "ue8m0", 128, 16, 1, (0, 0)), settings=settings(1)
)

UNFENCED = Routine(partial(test_tcgen05_checks.run_one, fences=False), settings=settings(1))
RELAXED = {"changed": {"wait": test_tcgen05_checks.WAITING.format(".relaxed.cta")}}
PAIR = Routine(partial(test_tcgen05_checks.one, 2), settings=settings(1))
TILED = Routine(test_tcgen05_checks.run_tiled, settings=settings(1))
OTHER_TYPE = {"descriptor": test_tcgen05.idesc("f16", "bf16", "bf16", "f32", 128, 16)}

FAULTS = [
    *_products(),
    Fault("tcgen05: a relaxed wait, and no fence after it", "EMU_TCGEN05_FENCE", UNFENCED, Arguments(RELAXED)),
    Fault(
        "tcgen05: a peer's commit that one CTA waits for and the other does not",
        "EMU_TCGEN05_COMMIT_UNSEEN",
        PAIR,
        Arguments({"changed": test_tcgen05_checks.LEADER_WAITS}),
    ),
    *(
        Fault(f"tcgen05: a descriptor of a copied tile with {name}", "EMU_DESCRIPTOR_TILE", TILED, Arguments(fields))
        for name, fields in test_tcgen05_checks.TILES.items()
    ),
    Fault(
        "tcgen05: sums that are asked for as the chip makes them",
        "EMU_TCGEN05_NUMERICS",
        TILED,
        Arguments({"numerics": "model"}),
    ),
    Fault("tcgen05: a product that takes the tile for bf16", "EMU_OPERAND_TYPE", TILED, Arguments(OTHER_TYPE)),
    Fault(
        "tcgen05: scales that are not the same in every quarter of the lanes",
        "EMU_TCGEN05_SCALES",
        SCALED,
        Arguments({"spoiled": True}),
    ),
    *(
        Fault(f"a pair's copies: {name}", code, COPIES, Arguments({"arm": arm, "copy": copy, "wait": wait}), SETTING)
        for name, (code, arm, copy, wait) in test_pairs.FAULTS.items()
    ),
]
