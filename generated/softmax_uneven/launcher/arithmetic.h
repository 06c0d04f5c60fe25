// Checked unsigned 64-bit arithmetic: what the expressions of launch.json are made of.
//
// A result that does not fit, a negative difference and a division by zero do not wrap: they are remembered, and an
// `Arithmetic` that was made before the first step says so. The flag belongs to the thread, so that an expression
// stays as readable as it is in launch.json.
#pragma once

#include <cstdint>
#include <limits>

namespace {

inline bool& arithmetic_flag() {
  static thread_local bool failed = false;
  return failed;
}

struct Arithmetic {
  Arithmetic() { arithmetic_flag() = false; }
  bool failed() const { return arithmetic_flag(); }
};

struct Number {
  std::uint64_t value;
  Number() : value(0) {}
  Number(std::uint64_t v) : value(v) {}  // literals become numbers by themselves
};

inline Number no_value() {
  arithmetic_flag() = true;
  return Number(0);
}

inline Number operator+(Number a, Number b) {
  return a.value > UINT64_MAX - b.value ? no_value() : Number(a.value + b.value);
}
inline Number operator-(Number a, Number b) { return a.value < b.value ? no_value() : Number(a.value - b.value); }
inline Number operator*(Number a, Number b) {
  return a.value != 0 && b.value > UINT64_MAX / a.value ? no_value() : Number(a.value * b.value);
}
inline Number operator/(Number a, Number b) { return b.value == 0 ? no_value() : Number(a.value / b.value); }
inline Number operator%(Number a, Number b) { return b.value == 0 ? no_value() : Number(a.value % b.value); }

inline bool operator==(Number a, Number b) { return a.value == b.value; }
inline bool operator!=(Number a, Number b) { return a.value != b.value; }
inline bool operator<(Number a, Number b) { return a.value < b.value; }
inline bool operator<=(Number a, Number b) { return a.value <= b.value; }
inline bool operator>(Number a, Number b) { return a.value > b.value; }
inline bool operator>=(Number a, Number b) { return a.value >= b.value; }

inline Number min(Number a, Number b) { return b < a ? b : a; }
inline Number max(Number a, Number b) { return a < b ? b : a; }
inline Number ceil_div(Number a, Number b) { return a / b + (a % b == 0 ? 0 : 1); }
inline Number align_up(Number a, Number b) { return ceil_div(a, b) * b; }

// `a` as a kernel's integer parameter.
template <typename Integer>
Integer narrow(Number a) {
  if (a.value <= static_cast<std::uint64_t>(std::numeric_limits<Integer>::max())) return static_cast<Integer>(a.value);
  return static_cast<Integer>(no_value().value);
}

}  // namespace
