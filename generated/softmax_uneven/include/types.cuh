// Fixed-width integers and the storage types of matrix elements. Nothing of the toolkit stands behind these, so
// that NVRTC, nvcc and clang read the same text.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// An element as it lies in memory: the bits, and nothing that could be mistaken for arithmetic.
struct bf16 { u16 bits; };
struct fp16 { u16 bits; };
struct tf32 { u32 bits; };  // a whole float in memory; the tensor core reads its upper 19 bits
struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };
