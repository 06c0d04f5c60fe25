"""Prints how fast the emulator is: `python tests/emulator/benchmark.py`."""

from advisor.emulator.benchmark import measure_all

if __name__ == "__main__":
    for rate in measure_all():
        print(  # noqa: T201
            f"{rate.name:15} {rate.per_second:12,.0f} warp instructions/s  (wanted {rate.wanted:9,.0f})"
            f"  {rate.warp_instructions} in {rate.seconds:.2f} s"
        )
