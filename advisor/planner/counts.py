"""The table of what can be counted without the chip: the kind's rows of the choice, and those every kind has. Imports
`context`, `records`."""

from __future__ import annotations

from advisor.kinds.workload import Workload
from advisor.planner.search import Rung
from advisor.records.counts import CountRow, CountTable
from advisor.records.plan import Choice

PLACES = "SMs and waves"


def view(workload: Workload, rung: Rung, choice: Choice) -> CountTable:
    """Of the plan's choice, on the GPU that it is planned for."""
    own = workload.counts(rung.candidate, rung.profile, rung.timing, choice.prediction)
    return CountTable(kernel_id=choice.kernel_id, rows=[*own.rows, *_places(rung, choice)], published=own.published)


def _places(rung: Rung, choice: Choice) -> list[CountRow]:
    fit, size, sms = choice.residency, rung.candidate.cluster_size, rung.profile.sms
    places = "clusters" if size > 1 else "CTAs"
    source = "queried" if fit.queried else "the formula over the profile's SM groups"
    used = choice.prediction.last_wave_use
    tiles, many = rung.timing.tiles, rung.candidate.unit_words.many
    workless = max(0, fit.sms_used - tiles * size)  # a CTA is put on an SM that has none while there is one
    few = f", and {tiles} to run" if workless else ""
    return [
        CountRow(
            group=PLACES,
            name="SMs without a CTA",
            unit=f"of {sms}",
            value=fit.sms_idle + workless,
            how=f"{fit.max_active_clusters} {places} resident: {source}{few}",
            relation="at_most",
            limit=0,
            limit_is="all of them work",
            within="none idle",
            beyond="idle for the whole launch",
        ),
        CountRow(
            group=PLACES,
            name="waves",
            value=choice.prediction.waves,
            how=f"{tiles} {many}, {round(tiles / choice.prediction.waves)} {places} at once",
        ),
        CountRow(group=PLACES, name="of the last wave, in use", unit="%", value=100.0 * used, how="of the line above"),
    ]
