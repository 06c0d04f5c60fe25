"""What a tensor map asks of an operand, one clause per rule. Imports `problem` and `records`.

cuTensorMapEncodeTiled: the base address is a multiple of 16 bytes, every stride of a dimension above the first a
multiple of 16 bytes below 2^40, a box at most 256 elements in each dimension. Only the strides count: extents may be
anything, since boxes that stick out are filled with zeros.
"""

from __future__ import annotations

from advisor.problem.gemm import GemmProblem, Matrix
from advisor.records.rows import Violation

STRIDE_BYTES = 16
BASE_BYTES = 16
MAX_STRIDE_BYTES = 2**40
MAX_BOX = 256
MAX_TX_BYTES = 2**20  # a phase of an mbarrier counts up to 2^20 - 1 pending bytes


def operand_violations(p: GemmProblem, name: str) -> list[Violation]:
    """The rules that operand `name` (a, b, c or d) breaks, each with the pad or the alignment that mends it."""
    matrix: Matrix = getattr(p, name)
    upper = name.upper()
    found = []
    row_bytes = matrix.ld * matrix.element_bytes
    if row_bytes % STRIDE_BYTES:
        pad_bytes = -(-row_bytes // STRIDE_BYTES) * STRIDE_BYTES
        found.append(
            Violation(
                "TMA_STRIDE_16B",
                f"operand {upper}: its leading dimension is {matrix.ld} elements = {row_bytes} bytes, not a "
                f"multiple of 16; "
                f"pad it to {pad_bytes // matrix.element_bytes} elements ({pad_bytes} bytes)",
                {
                    "operand": upper,
                    "stride_bytes": row_bytes,
                    "pad_to_bytes": pad_bytes,
                    "pad_to_elements": pad_bytes // matrix.element_bytes,
                },
            )
        )
    batch_bytes = matrix.batch_stride * matrix.element_bytes
    if p.batch > 1 and batch_bytes % STRIDE_BYTES:
        pad_bytes = -(-batch_bytes // STRIDE_BYTES) * STRIDE_BYTES
        found.append(
            Violation(
                "TMA_STRIDE_16B",
                f"operand {upper}: its batch stride is {matrix.batch_stride} elements = {batch_bytes} bytes, "
                f"not a multiple of "
                f"16; pad it to {pad_bytes // matrix.element_bytes} elements ({pad_bytes} bytes)",
                {
                    "operand": upper,
                    "stride_bytes": batch_bytes,
                    "pad_to_bytes": pad_bytes,
                    "pad_to_elements": pad_bytes // matrix.element_bytes,
                },
            )
        )
    for stride in (row_bytes, batch_bytes if p.batch > 1 else 0):
        if stride >= MAX_STRIDE_BYTES:
            found.append(
                Violation(
                    "TMA_STRIDE_RANGE",
                    f"operand {upper}: a stride of {stride} bytes; a tensor map takes less than 2^40",
                    {"operand": upper, "stride_bytes": stride},
                )
            )
    if matrix.align_bytes % BASE_BYTES:
        found.append(
            Violation(
                "TMA_BASE_16B",
                f"operand {upper}: its base address is only known to be a multiple of {matrix.align_bytes} "
                f"bytes; a tensor map "
                "needs 16: align the buffer and set align_bytes: 16",
                {"operand": upper, "align_bytes": matrix.align_bytes, "needed_bytes": BASE_BYTES},
            )
        )
    return found


def input_violations(p: GemmProblem) -> list[Violation]:
    """The rules that A or B break: a family that loads through TMA cannot serve the problem then."""
    return operand_violations(p, "a") + operand_violations(p, "b")


def store_through_tma(p: GemmProblem) -> bool:
    """Whether D can leave through a tensor map; otherwise the epilogue stores directly and the kernel stays."""
    return not operand_violations(p, "d")
