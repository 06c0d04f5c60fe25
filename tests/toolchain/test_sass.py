"""What is read from machine code."""

from __future__ import annotations

import pytest

from advisor.codegen import templates
from advisor.errors import ToolError
from advisor.toolchain import Unit, compile_cuda, sass, sass_facts
from advisor.toolchain.sass import SassFacts, parse_sass

LISTING = """
\t.section\t.text.gemm,"ax",@progbits
.text.gemm:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/                   UTMALDG.2D.MULTICAST.CTA [UR8], [UR4], UR10 ;
        /*0030*/              @UP1 UTMALDG.3D [UR8], [UR4] ;
        /*0040*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, !UPT ;
\t.section\t.nv.info.gemm,"",@"SHT_CUDA_INFO"
\t.section\t.text.reduce,"ax",@progbits
        /*0000*/                   LDL R1, [R2] ;
        /*0010*/                   EXIT ;
"""


def test_instructions_are_counted_per_function():
    facts = parse_sass(LISTING)
    assert set(facts.functions) == {"gemm", "reduce"}
    assert facts.wgmma == 1
    assert facts.tma_loads == 2
    assert facts.tma_multicast_loads == 1
    assert facts.local_memory == 1
    assert facts.count("BRA") == 1
    assert facts.count("LDL", "gemm") == 0
    assert not facts.has("LDG")
    assert facts.summary()["instructions"] == 7


LOOPS = """
\t.section\t.text.gemm,"ax",@progbits
.text.gemm:
.L_x_0:
        /*0000*/                   NOP ;
.L_x_1:
        /*0010*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R7+URZ], R4 ;
        /*0020*/              @!P1 BRA `(.L_x_2) ;
.L_x_3:
        /*0030*/                   UTCHMMA.2CTA gdesc[UR26], gdesc[UR4], tmem[UR25], tmem[UR32], idesc[UR33], UP0 ;
        /*0040*/               @P2 BRA `(.L_x_1) ;
        /*0050*/              @!P3 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   NANOSLEEP 0x20 ;
        /*0080*/                   BRA `(.L_x_2) ;
"""


def test_the_main_loop_is_the_shortest_that_multiplies():
    facts = parse_sass(LOOPS)
    assert facts.loops == {"gemm": 4}
    assert facts.pair_mma == 1
    assert facts.summary()["main_loop_instructions"] == 4
    assert parse_sass(LISTING).loops == {}


def test_a_pattern_matches_modifiers_in_any_order_and_never_a_longer_opcode():
    facts = SassFacts({"k": {"UTMALDG.3D.MULTICAST.2CTA": 2, "UTMALDGX": 5}})
    assert facts.count("UTMALDG.2CTA.MULTICAST") == 2
    assert facts.count("UTMALDG") == 2
    assert facts.count("UTMALDG.2D") == 0


def test_a_real_image_shows_what_its_source_asked_for():
    source = """#include "ptx/mma_sync.cuh"
extern "C" __global__ void k(u32* p) {
    const u32 a[4] = {p[0], p[1], p[2], p[3]}, b[2] = {p[4], p[5]};
    float d[4] = {};
    ptx::mma_sync<bf16, bf16>(d, a, b);
    p[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}"""
    unit = Unit("k.cu", source, templates.headers_for(source), "sm_90a", {})
    facts = sass_facts(compile_cuda(unit, use_cache=False).cubin)
    assert facts.mma_sync == 1
    assert facts.local_memory == 0
    assert facts.count("HMMA.16816.F32.BF16", "k") == 1


def test_bytes_that_are_no_image_are_refused_with_the_tool_s_words():
    with pytest.raises(ToolError) as caught:
        sass_facts(b"not an image")
    assert caught.value.code == "DISASSEMBLY_FAILED"
    assert "nvdisasm" in caught.value.message


def test_without_nvdisasm_the_message_names_the_package(monkeypatch):
    def no_package(_name):
        raise sass.metadata.PackageNotFoundError

    monkeypatch.setattr(sass.metadata, "files", no_package)
    monkeypatch.setattr(sass.shutil, "which", lambda _: None)
    sass.disassembler.cache_clear()
    try:
        with pytest.raises(ToolError) as caught:
            sass.disassembler()
    finally:
        sass.disassembler.cache_clear()
    assert caught.value.code == "DISASSEMBLER_MISSING"
    assert "nvidia-cuda-nvdisasm" in caught.value.fix
