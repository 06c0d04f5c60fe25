"""Plan to sources, through Jinja. Imports only rooms below `codegen`.

render.py      a plan to a bundle: render_bundle; what validation builds beside it: render_variants
ladder.py      when each of the bundle's kernels runs (which those are: records/twins.py)
host.py        launcher, binding, test program and README from launch.json
templates.py   where text comes from: load, render, headers_for
"""

from advisor.bundle import RenderedBundle
from advisor.codegen.render import Run, bundle_runs, render_bundle, render_variants, variant_runs

__all__ = ["RenderedBundle", "Run", "bundle_runs", "render_bundle", "render_variants", "variant_runs"]
