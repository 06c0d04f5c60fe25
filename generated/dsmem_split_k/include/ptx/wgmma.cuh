// `wgmma`: the asynchronous matrix multiply of a warpgroup. One instruction each; all 128 threads of one warpgroup
// together, converged. sm_90a.
// mma_async multiplies m64, nN and 32 bytes of K: D[64, N] (+)= A B. D lies in registers: thread t of the warpgroup
// holds at d[4j + 2i + e] the element of row 16 (t / 32) + (t % 32) / 4 + 8 i, column 8 j + 2 (t % 4) + e.
#pragma once

#include "ptx/pin.cuh"
#include "types.cuh"

namespace ptx {

// Before the first mma_async, and whenever other code has touched the registers of D since.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All but the newest kGroups groups are complete: their operands in shared memory are read, and with 0 groups left D
// may be touched (behind `pin`).
template <u32 kGroups>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// wgmma_mma_async<N, A, B>::issue<kTransposeA, kTransposeB>(d, a, b, accumulate): a and b are shared memory
// descriptors; transposed means MN-major, which only 16-bit types have; accumulate 0 overwrites D.
template <u32 kN, typename A, typename B>
struct wgmma_mma_async;

#define ADVISOR_REGISTERS_4 "%0, %1, %2, %3"
#define ADVISOR_REGISTERS_8 ADVISOR_REGISTERS_4 ", %4, %5, %6, %7"
#define ADVISOR_REGISTERS_12 \
    ADVISOR_REGISTERS_8 \
    ", %8, %9, %10, %11"
#define ADVISOR_REGISTERS_16 \
    ADVISOR_REGISTERS_12 \
    ", %12, %13, %14, %15"
#define ADVISOR_REGISTERS_24 \
    ADVISOR_REGISTERS_16 \
    ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ADVISOR_REGISTERS_32 \
    ADVISOR_REGISTERS_24 \
    ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ADVISOR_REGISTERS_40 \
    ADVISOR_REGISTERS_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ADVISOR_REGISTERS_48 \
    ADVISOR_REGISTERS_40 \
    ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ADVISOR_REGISTERS_56 \
    ADVISOR_REGISTERS_48 \
    ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ADVISOR_REGISTERS_64 \
    ADVISOR_REGISTERS_56 \
    ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ADVISOR_REGISTERS_72 \
    ADVISOR_REGISTERS_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ADVISOR_REGISTERS_80 \
    ADVISOR_REGISTERS_72 \
    ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ADVISOR_REGISTERS_88 \
    ADVISOR_REGISTERS_80 \
    ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ADVISOR_REGISTERS_96 \
    ADVISOR_REGISTERS_88 \
    ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ADVISOR_REGISTERS_104 \
    ADVISOR_REGISTERS_96 \
    ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ADVISOR_REGISTERS_112 \
    ADVISOR_REGISTERS_104 \
    ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ADVISOR_REGISTERS_120 \
    ADVISOR_REGISTERS_112 \
    ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ADVISOR_REGISTERS_128 \
    ADVISOR_REGISTERS_120 \
    ", %120, %121, %122, %123, %124, %125, %126, %127"

#define ADVISOR_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ADVISOR_D8(i) ADVISOR_D4(i), ADVISOR_D4(i + 4)
#define ADVISOR_D12(i) ADVISOR_D8(i), ADVISOR_D4(i + 8)
#define ADVISOR_D16(i) ADVISOR_D12(i), ADVISOR_D4(i + 12)
#define ADVISOR_D24(i) ADVISOR_D16(i), ADVISOR_D8(i + 16)
#define ADVISOR_D32(i) ADVISOR_D24(i), ADVISOR_D8(i + 24)
#define ADVISOR_D40(i) ADVISOR_D32(i), ADVISOR_D8(i + 32)
#define ADVISOR_D48(i) ADVISOR_D40(i), ADVISOR_D8(i + 40)
#define ADVISOR_D56(i) ADVISOR_D48(i), ADVISOR_D8(i + 48)
#define ADVISOR_D64(i) ADVISOR_D56(i), ADVISOR_D8(i + 56)
#define ADVISOR_D72(i) ADVISOR_D64(i), ADVISOR_D8(i + 64)
#define ADVISOR_D80(i) ADVISOR_D72(i), ADVISOR_D8(i + 72)
#define ADVISOR_D88(i) ADVISOR_D80(i), ADVISOR_D8(i + 80)
#define ADVISOR_D96(i) ADVISOR_D88(i), ADVISOR_D8(i + 88)
#define ADVISOR_D104(i) ADVISOR_D96(i), ADVISOR_D8(i + 96)
#define ADVISOR_D112(i) ADVISOR_D104(i), ADVISOR_D8(i + 104)
#define ADVISOR_D120(i) ADVISOR_D112(i), ADVISOR_D8(i + 112)
#define ADVISOR_D128(i) ADVISOR_D120(i), ADVISOR_D8(i + 120)

// One struct: N, the types, their PTX names, the registers of D, then the operand numbers that follow them (A, B,
// accumulate) and what ends the instruction.
#define ADVISOR_WGMMA(N, A, B, TYPES, R, a, b, p, TAIL, ...)                                                       \
    template <>                                                                                                    \
    struct wgmma_mma_async<N, A, B> {                                                                              \
        template <u32 kTransposeA, u32 kTransposeB>                                                                \
        __device__ static __forceinline__ void issue(float (&d)[R], u64 desc_a, u64 desc_b, u32 accumulate) {      \
            asm volatile(                                                                                          \
                "{\n"                                                                                              \
                ".reg .pred p;\n"                                                                                  \
                "setp.ne.b32 p, " p ", 0;\n"                                                                       \
                "wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" ADVISOR_REGISTERS_##R "}, " a ", " b             \
                ", p, 1, 1" TAIL ";\n"                                                                             \
                "}\n"                                                                                              \
                : ADVISOR_D##R(0)                                                                                  \
                : "l"(desc_a), "l"(desc_b), "r"(accumulate) __VA_ARGS__);                                          \
        }                                                                                                          \
    };
#define ADVISOR_MAJORS , "n"(kTransposeA), "n"(kTransposeB)

// Every type at one N.
#define ADVISOR_WGMMA_N(N, R, a, b, p, ta, tb)                                                                     \
    ADVISOR_WGMMA(N, bf16, bf16, "k16.f32.bf16.bf16", R, a, b, p, ", " ta ", " tb, ADVISOR_MAJORS)                 \
    ADVISOR_WGMMA(N, fp16, fp16, "k16.f32.f16.f16", R, a, b, p, ", " ta ", " tb, ADVISOR_MAJORS)                   \
    ADVISOR_WGMMA(N, tf32, tf32, "k8.f32.tf32.tf32", R, a, b, p, "", )                                             \
    ADVISOR_WGMMA(N, e4m3, e4m3, "k32.f32.e4m3.e4m3", R, a, b, p, "", )                                            \
    ADVISOR_WGMMA(N, e4m3, e5m2, "k32.f32.e4m3.e5m2", R, a, b, p, "", )                                            \
    ADVISOR_WGMMA(N, e5m2, e4m3, "k32.f32.e5m2.e4m3", R, a, b, p, "", )                                            \
    ADVISOR_WGMMA(N, e5m2, e5m2, "k32.f32.e5m2.e5m2", R, a, b, p, "", )

ADVISOR_WGMMA_N(8, 4, "%4", "%5", "%6", "%7", "%8")
ADVISOR_WGMMA_N(16, 8, "%8", "%9", "%10", "%11", "%12")
ADVISOR_WGMMA_N(24, 12, "%12", "%13", "%14", "%15", "%16")
ADVISOR_WGMMA_N(32, 16, "%16", "%17", "%18", "%19", "%20")
ADVISOR_WGMMA_N(48, 24, "%24", "%25", "%26", "%27", "%28")
ADVISOR_WGMMA_N(64, 32, "%32", "%33", "%34", "%35", "%36")
ADVISOR_WGMMA_N(80, 40, "%40", "%41", "%42", "%43", "%44")
ADVISOR_WGMMA_N(96, 48, "%48", "%49", "%50", "%51", "%52")
ADVISOR_WGMMA_N(112, 56, "%56", "%57", "%58", "%59", "%60")
ADVISOR_WGMMA_N(128, 64, "%64", "%65", "%66", "%67", "%68")
ADVISOR_WGMMA_N(144, 72, "%72", "%73", "%74", "%75", "%76")
ADVISOR_WGMMA_N(160, 80, "%80", "%81", "%82", "%83", "%84")
ADVISOR_WGMMA_N(176, 88, "%88", "%89", "%90", "%91", "%92")
ADVISOR_WGMMA_N(192, 96, "%96", "%97", "%98", "%99", "%100")
ADVISOR_WGMMA_N(208, 104, "%104", "%105", "%106", "%107", "%108")
ADVISOR_WGMMA_N(224, 112, "%112", "%113", "%114", "%115", "%116")
ADVISOR_WGMMA_N(240, 120, "%120", "%121", "%122", "%123", "%124")
ADVISOR_WGMMA_N(256, 128, "%128", "%129", "%130", "%131", "%132")

#undef ADVISOR_WGMMA_N
#undef ADVISOR_WGMMA
#undef ADVISOR_MAJORS
#undef ADVISOR_D4
#undef ADVISOR_D8
#undef ADVISOR_D12
#undef ADVISOR_D16
#undef ADVISOR_D24
#undef ADVISOR_D32
#undef ADVISOR_D40
#undef ADVISOR_D48
#undef ADVISOR_D56
#undef ADVISOR_D64
#undef ADVISOR_D72
#undef ADVISOR_D80
#undef ADVISOR_D88
#undef ADVISOR_D96
#undef ADVISOR_D104
#undef ADVISOR_D112
#undef ADVISOR_D120
#undef ADVISOR_D128
#undef ADVISOR_REGISTERS_4
#undef ADVISOR_REGISTERS_8
#undef ADVISOR_REGISTERS_12
#undef ADVISOR_REGISTERS_16
#undef ADVISOR_REGISTERS_24
#undef ADVISOR_REGISTERS_32
#undef ADVISOR_REGISTERS_40
#undef ADVISOR_REGISTERS_48
#undef ADVISOR_REGISTERS_56
#undef ADVISOR_REGISTERS_64
#undef ADVISOR_REGISTERS_72
#undef ADVISOR_REGISTERS_80
#undef ADVISOR_REGISTERS_88
#undef ADVISOR_REGISTERS_96
#undef ADVISOR_REGISTERS_104
#undef ADVISOR_REGISTERS_112
#undef ADVISOR_REGISTERS_120
#undef ADVISOR_REGISTERS_128

}  // namespace ptx
