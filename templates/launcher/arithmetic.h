// Checked unsigned 64-bit arithmetic: what the expressions of launch.json are made of.
//
// A result that does not fit, a negative difference and a division by zero do not wrap: they are remembered until
// `checked` asks. The flag belongs to the thread, so that an expression stays as readable as it is in launch.json.
#pragma once

#include <cstdint>

namespace launch_arithmetic {

inline bool& failed_flag() {
  static thread_local bool failed = false;
  return failed;
}

struct Number {
  std::uint64_t value;
  Number(std::uint64_t v) : value(v) {}  // NOLINT: literals become numbers by themselves
};

inline Number failure() {
  failed_flag() = true;
  return Number(0);
}

inline Number operator+(Number a, Number b) { return a.value > UINT64_MAX - b.value ? failure() : Number(a.value + b.value); }
inline Number operator-(Number a, Number b) { return a.value < b.value ? failure() : Number(a.value - b.value); }
inline Number operator*(Number a, Number b) {
  return a.value != 0 && b.value > UINT64_MAX / a.value ? failure() : Number(a.value * b.value);
}
inline Number operator/(Number a, Number b) { return b.value == 0 ? failure() : Number(a.value / b.value); }
inline Number operator%(Number a, Number b) { return b.value == 0 ? failure() : Number(a.value % b.value); }

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

// The value of `expression()`; *failed is set where some step of it had none, and left alone otherwise.
template <typename Expression>
std::uint64_t checked(Expression expression, bool* failed) {
  failed_flag() = false;
  const std::uint64_t value = Number(expression()).value;
  if (failed_flag()) *failed = true;
  return value;
}

}  // namespace launch_arithmetic
