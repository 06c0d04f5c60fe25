"""The parser of ptxas -v, on logs as the assembler writes them."""

from advisor.toolchain.resources import parse_usage, warnings_in, without_timings
from advisor.toolchain.unit import EntryResources

LOG = """ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async are serialized due to x in 'main'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main' for 'sm_90a'
ptxas info    : Function properties for main
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1040 bytes smem, 384 bytes cmem[0]
ptxas info    : Compile time = 6.230 ms
ptxas info    : Function properties for helper
    24 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'reduce' for 'sm_90a'
ptxas info    : Function properties for reduce
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
"""


def test_entries_have_their_own_resources_and_called_functions_count_in_the_totals():
    usage = parse_usage(LOG)
    assert usage.entries == {"main": EntryResources(168, 1040, 16, 20), "reduce": EntryResources(14, 0, 0, 0)}
    assert usage.spill_bytes == 24
    assert usage.stack_bytes == 40


def test_an_empty_log_has_no_entries():
    assert parse_usage("").entries == {}


def test_timings_are_left_out_of_the_log_and_warnings_are_found():
    assert "Compile time" not in without_timings(LOG)
    assert len(warnings_in(LOG)) == 1
    assert "serialized" in warnings_in(LOG)[0]
