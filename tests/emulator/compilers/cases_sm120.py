"""Cases for the other Blackwell chips: sm_120 (mma.sync with block scales, no tensor memory) and sm_103."""

from __future__ import annotations

from functools import partial

from tests.emulator.compilers import cases_blocks as blocks
from tests.emulator.compilers import cases_matmul as matmul
from tests.emulator.compilers.catalogue import Catalogue

SM120 = Catalogue()
SM120.add("dot_fp16_ragged", partial(matmul.pointers, 120, "float16", (96, 80, 72), (64, 64, 32), out="float16"))
SM120.add("dot_e4m3", partial(matmul.pointers, 120, "float8_e4m3fn", (64, 64, 128), (64, 64, 64), b_major="k"))
SM120.add("tma_host", partial(matmul.host_descriptors, 120, (128, 104, 96), (64, 64, 32)))
SM120.add("tma_device", partial(matmul.device_descriptors, 120, (128, 64, 96), (64, 64, 32)))
SM120.add("clc_option", partial(matmul.host_descriptors, 120, (192, 128, 96), (64, 64, 32), clc=True))
for _kind in matmul.SCALED:
    SM120.add(f"scaled_{_kind}", partial(matmul.block_scaled, 120, _kind, (128, 64, 256), (64, 64, 128)))
SM120.add("attention", partial(matmul.attention_pointers, 120, 1, 96, 64, causal=True))
SM120.add("softmax", partial(blocks.softmax, 120))
SM120.add("scaled_nvfp4_sm_103", partial(matmul.block_scaled, 103, "nvfp4", (128, 128, 256), (128, 128, 128)))
SM120.add("clc_option_sm_103", partial(matmul.host_descriptors, 103, (256, 128, 128), (128, 64, 64), clc=True))
