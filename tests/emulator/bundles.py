"""Every (kernel, image) of the committed bundles that the golden cases have to cover."""

from __future__ import annotations

from pathlib import Path

from advisor.bundle import read_bundle, units

GENERATED = Path(__file__).parent.parent.parent / "generated"
BUNDLES = {each.name: read_bundle(each) for each in sorted(GENERATED.iterdir()) if (each / "launch.json").exists()}
ROWS = {
    f"{name}-{row.kernel_id}-{row.target}": (name, row)
    for name, bundle in BUNDLES.items()
    for row in units(bundle)
    if row.target in ("sm_80", "sm_90a")
}
