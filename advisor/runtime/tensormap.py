"""TensorMapParam -> the 128 bytes of a CUtensorMap, through the driver's encoder.

Imports `records`, `errors` and the driver. The rules of the encoder are checked by the driver; what it refuses is
reported with every argument, since it says only CUDA_ERROR_INVALID_VALUE itself.
"""

from __future__ import annotations

import ctypes
from typing import Any

from advisor.errors import DeviceError
from advisor.records.launch import ElementMapParam, TensorMapParam
from advisor.runtime.driver import Api

TENSOR_MAP_BYTES = 128

_DATA_TYPE = {
    "bfloat16": "BFLOAT16",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "float8_e4m3fn": "UINT8",
    "float8_e5m2": "UINT8",
    "float8_e8m0fnu": "UINT8",
    "float4_e2m1fn_x2": "UINT8",
    "int8": "UINT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
}
_INTERLEAVE = {"none": "NONE", "16B": "16B", "32B": "32B"}
_PROMOTION = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILL = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


def encode(api: Api, param: TensorMapParam | ElementMapParam, address: int) -> bytes:
    """The tensor map of a resolved parameter over `address`. An extent of 0 is encoded as 1.

    Raises DeviceError TENSOR_MAP_REFUSED with the encoder's arguments.
    """
    arguments = encoder_arguments(param)
    raw = api.raw
    try:
        made = api.call(
            "cuTensorMapEncodeTiled",
            api.enum("CUtensorMapDataType", f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPE.get(param.dtype, param.dtype)}"),
            param.rank,
            raw.CUdeviceptr(address),
            [raw.cuuint64_t(each) for each in arguments["global_dim"]],
            # A map of rank 1 has no stride, and the encoder refuses a null pointer for none.
            [raw.cuuint64_t(each) for each in arguments["global_stride_bytes"] or [0]],
            [raw.cuuint32_t(each) for each in arguments["box_dim"]],
            [raw.cuuint32_t(each) for each in arguments["element_strides"]],
            api.enum("CUtensorMapInterleave", f"CU_TENSOR_MAP_INTERLEAVE_{_INTERLEAVE[param.interleave]}"),
            api.enum("CUtensorMapSwizzle", f"CU_TENSOR_MAP_SWIZZLE_{param.swizzle.upper()}"),
            api.enum("CUtensorMapL2promotion", f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTION[param.l2_promotion]}"),
            api.enum("CUtensorMapFloatOOBfill", f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILL[param.oob_fill]}"),
        )
    except DeviceError as error:
        raise DeviceError(
            "TENSOR_MAP_REFUSED",
            f"tensor map {param.name!r} over buffer {param.buffer!r} at {address:#x}: {error.message}; {arguments}",
            fix="the address and every stride must be multiples of 16 bytes, a box at most 256 elements per dimension "
            "and its inner extent at most the swizzle width",
            numbers={"address": address, **arguments},
        ) from error
    return ctypes.string_at(int(made.getPtr()), TENSOR_MAP_BYTES)


def encoder_arguments(param: TensorMapParam | ElementMapParam) -> dict[str, Any]:
    """Dimensions, strides and box of a resolved parameter as integers, innermost first."""
    return {
        "global_dim": [max(1, int(each)) for each in param.global_dim],
        "global_stride_bytes": [int(each) for each in param.global_stride_bytes],
        "box_dim": list(param.box_dim),
        "element_strides": list(param.element_strides),
    }
