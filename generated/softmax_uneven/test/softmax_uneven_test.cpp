// Runs softmax_uneven on the GPU at hand and compares it with a loop on the CPU. Prints a line for each case and exits 1 when
// one of them fails.
//
//   softmax_uneven_test <folder of cubins>
//
// Each case runs the rung that the ladder picks, every rung that can be forced, and the picked one from a CUDA graph.
// Inputs are small integers.
#include "softmax_uneven.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

// --- storage types ------------------------------------------------------------------------------------------------

// A float of `kExponent` exponent bits and `kMantissa` mantissa bits in a Storage integer, rounded to nearest even.
// Values of the tests are finite and in range.
template <typename Storage, int kExponent, int kMantissa>
struct Small {
  using Bits = Storage;
  static constexpr double kRoundoff = 1.0 / (2 << kMantissa);

  static Storage from(double value) {
    if (value == 0.0) return 0;
    const int bias = (1 << (kExponent - 1)) - 1;
    int exponent = 0;
    std::frexp(value, &exponent);
    exponent = std::max(exponent - 1, 1 - bias);
    const double scaled = std::nearbyint(std::fabs(std::ldexp(value, kMantissa - exponent)));
    std::int64_t magnitude = static_cast<std::int64_t>(scaled);
    // A subnormal has no hidden bit; a mantissa that rounds up to the next power of two carries into the exponent.
    magnitude += static_cast<std::int64_t>(exponent + bias - 1) << kMantissa;
    const std::int64_t sign = value < 0 ? std::int64_t{1} << (kExponent + kMantissa) : 0;
    return static_cast<Storage>(magnitude | sign);
  }

  static double to(Storage bits) {
    const std::int64_t raw = static_cast<std::int64_t>(bits);
    const std::int64_t mantissa = raw & ((std::int64_t{1} << kMantissa) - 1);
    const int exponent = static_cast<int>((raw >> kMantissa) & ((1 << kExponent) - 1));
    const int bias = (1 << (kExponent - 1)) - 1;
    const bool negative = ((raw >> (kExponent + kMantissa)) & 1) != 0;
    double value = 0.0;
    if (exponent == (1 << kExponent) - 1 && kMantissa != 3) {  // e4m3 has no infinity
      value = mantissa == 0 ? HUGE_VAL : NAN;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<double>(mantissa), 1 - bias - kMantissa);
    } else {
      value = std::ldexp(static_cast<double>(mantissa + (std::int64_t{1} << kMantissa)), exponent - bias - kMantissa);
    }
    return negative ? -value : value;
  }
};

using bf16 = Small<std::uint16_t, 8, 7>;
using fp16 = Small<std::uint16_t, 5, 10>;
using fp32 = Small<std::uint32_t, 8, 23>;
using tf32 = fp32;
using e4m3 = Small<std::uint8_t, 4, 3>;
using e5m2 = Small<std::uint8_t, 5, 2>;

using In = bf16;
using Out = bf16;
constexpr std::uint8_t kPoison = 0xA5;

struct Shape {
  const char* name;
  std::int64_t rows, cols;
  std::int64_t pad_bytes;  // rows start at multiples of so many bytes, with a gap before; 0: packed
};

std::int64_t stride_of(std::int64_t cols, std::size_t element, std::int64_t pad_bytes) {
  const std::int64_t unit = std::max<std::int64_t>(pad_bytes / static_cast<std::int64_t>(element), 1);
  return pad_bytes == 0 ? std::max<std::int64_t>(cols, 1) : (std::max<std::int64_t>(cols, 1) + unit - 1) / unit * unit + unit;
}

// Small integers from a linear congruential generator.
struct Random {
  std::uint64_t state;
  int next(int range) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(2 * range + 1)) - range;
  }
};

template <typename T>
std::vector<typename T::Bits> integers(std::int64_t count, std::uint64_t seed) {
  Random random{seed};
  std::vector<typename T::Bits> values(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
  for (auto& each : values) each = T::from(random.next(2));
  return values;
}

// --- the device ---------------------------------------------------------------------------------------------------

bool worked(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return true;
  const char* text = nullptr;
  (void)cuGetErrorName(result, &text);
  std::printf("FAIL %s: %s\n", call, text == nullptr ? "unknown error" : text);
  return false;
}

// Device memory that frees itself.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 256)) {
    if (!worked(cuMemAlloc(&address_, bytes_), "cuMemAlloc")) address_ = 0;
  }
  ~Memory() {
    if (address_ != 0) (void)cuMemFree(address_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T>
  bool upload(const std::vector<T>& values) {
    return address_ != 0 && worked(cuMemcpyHtoD(address_, values.data(), values.size() * sizeof(T)), "cuMemcpyHtoD");
  }
  template <typename T>
  bool download(std::vector<T>* values) const {
    return worked(cuMemcpyDtoH(values->data(), address_, values->size() * sizeof(T)), "cuMemcpyDtoH");
  }
  bool fill(std::uint8_t byte) { return address_ != 0 && worked(cuMemsetD8(address_, byte, bytes_), "cuMemsetD8"); }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

struct Verdict {
  int ran = 0;
  int failed = 0;
  void note(bool passed, const char* shape, const char* how, const char* rung, const std::string& detail) {
    ++ran;
    failed += passed ? 0 : 1;
    std::printf("%s %-10s %-8s %-28s %s\n", passed ? "PASS" : "FAIL", shape, how, rung, detail.c_str());
    std::fflush(stdout);
  }
};

// One shape: inputs, reference, and the comparison of what a launch left in Y.
class Case {
 public:
  explicit Case(const Shape& shape)
      : shape_(shape),
        x_stride_(stride_of(shape.cols, sizeof(In::Bits), shape.pad_bytes)),
        y_stride_(stride_of(shape.cols, sizeof(Out::Bits), shape.pad_bytes)),
        x_values_(integers<In>(x_stride_ * shape.rows, 1)),
        weight_values_(integers<In>(shape.cols, 2)),
        bias_values_(integers<In>(shape.cols, 3)),
        y_values_(static_cast<std::size_t>(std::max<std::int64_t>(y_stride_ * shape.rows, 1))),
        x_memory_(x_values_.size() * sizeof(In::Bits)),
        weight_memory_(weight_values_.size() * sizeof(In::Bits)),
        bias_memory_(bias_values_.size() * sizeof(In::Bits)),
        y_memory_(y_values_.size() * sizeof(Out::Bits)) {
    arguments_ = softmax_uneven_defaults();
    arguments_.rows = shape.rows;
    arguments_.cols = shape.cols;
    arguments_.row_stride = x_stride_;
    arguments_.out_stride = y_stride_;
    buffers_ = {};
    buffers_.X = x_memory_.pointer();
    buffers_.Y = y_memory_.pointer();
  }

  bool upload() {
    return x_memory_.upload(x_values_) && weight_memory_.upload(weight_values_) && bias_memory_.upload(bias_values_);
  }

  const softmax_uneven_arguments& arguments() const { return arguments_; }
  const softmax_uneven_buffers& buffers() const { return buffers_; }
  const Shape& shape() const { return shape_; }
  bool poison() { return y_memory_.fill(kPoison); }

  // Empty where Y is right: every element within its bound, every byte between rows untouched.
  std::string compare() {
    if (!y_memory_.download(&y_values_)) return "cannot read Y";
    std::vector<bool> inside(y_values_.size(), false);
    const std::int64_t width = shape_.cols;
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
      const std::vector<double> expected = reference(row);
      for (std::int64_t column = 0; column < width; ++column) {
        const std::size_t index = static_cast<std::size_t>(row * y_stride_ + column);
        inside[index] = true;
        const double wanted = expected[static_cast<std::size_t>(column)];
        const double got = Out::to(y_values_[index]);
        const double bound = Out::kRoundoff * std::fabs(wanted) + 2e-5 * (std::fabs(wanted) + 1.0) + 1e-30;
        if (!(std::fabs(got - wanted) <= bound) && !(std::isinf(wanted) && got == wanted)) {
          char text[160];
          std::snprintf(text, sizeof text, "Y[%lld][%lld] is %g, expected %g within %g", static_cast<long long>(row),
                        static_cast<long long>(column), got, wanted, bound);
          return text;
        }
      }
    }
    Out::Bits untouched;
    std::memset(&untouched, kPoison, sizeof untouched);
    for (std::size_t i = 0; i < y_values_.size(); ++i) {
      if (!inside[i] && y_values_[i] != untouched) return "padding of Y was written at element " + std::to_string(i);
    }
    return "";
  }

 private:
  std::vector<double> reference(std::int64_t row) const {
    std::vector<double> x(static_cast<std::size_t>(shape_.cols));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = In::to(x_values_[static_cast<std::size_t>(row * x_stride_) + i]);
    }
    double largest = -HUGE_VAL, total = 0.0;
    for (const double each : x) largest = std::max(largest, each);
    for (const double each : x) total += std::exp(each - largest);
    for (double& each : x) each = std::exp(each - largest) / total;
    return x;
  }

  Shape shape_;
  std::int64_t x_stride_, y_stride_;
  std::vector<In::Bits> x_values_, weight_values_, bias_values_;
  std::vector<Out::Bits> y_values_;
  Memory x_memory_, weight_memory_, bias_memory_, y_memory_;
  softmax_uneven_arguments arguments_;
  softmax_uneven_buffers buffers_;
};

// One launch of `rung` (null: the one that the ladder picks), directly or from a graph.
void check(const softmax_uneven_launcher* launcher, Case* test, const char* rung, bool graph, CUstream stream,
           Verdict* verdict) {
  const char* how = graph ? "graph" : rung == nullptr ? "picked" : "forced";
  const softmax_uneven_options options = {0, rung};
  const softmax_uneven_arguments* arguments = &test->arguments();
  const softmax_uneven_buffers* buffers = &test->buffers();
  const char* name = rung;
  std::size_t bytes = 0;
  softmax_uneven_status status = softmax_uneven_pick(launcher, arguments, buffers, &options, &name);
  if (status == SOFTMAX_UNEVEN_RUNG_UNAVAILABLE) return;
  if (status == SOFTMAX_UNEVEN_OK) status = softmax_uneven_workspace_bytes(launcher, arguments, buffers, &options, &bytes);
  Memory memory(bytes);
  void* workspace = memory.pointer();
  bool sound = test->poison() && memory.fill(kPoison);
  if (status == SOFTMAX_UNEVEN_OK) {
    status = softmax_uneven_prepare_workspace(launcher, arguments, buffers, &options, workspace, memory.bytes(), stream);
  }
  sound = sound && worked(cuStreamSynchronize(stream), "cuStreamSynchronize");
  CUgraph recorded = nullptr;
  CUgraphExec executable = nullptr;
  if (graph) {
    sound = sound && worked(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  }
  if (status == SOFTMAX_UNEVEN_OK) {
    status = softmax_uneven_run(launcher, arguments, buffers, &options, workspace, memory.bytes(), stream);
  }
  if (graph) {
    sound = sound && worked(cuStreamEndCapture(stream, &recorded), "cuStreamEndCapture") &&
            worked(cuGraphInstantiate(&executable, recorded, 0), "cuGraphInstantiate");
    for (int i = 0; sound && i < 3; ++i) sound = worked(cuGraphLaunch(executable, stream), "cuGraphLaunch");
  }
  sound = worked(cuStreamSynchronize(stream), "cuStreamSynchronize") && sound;
  if (executable != nullptr) (void)cuGraphExecDestroy(executable);
  if (recorded != nullptr) (void)cuGraphDestroy(recorded);
  std::string detail;
  if (status != SOFTMAX_UNEVEN_OK) {
    detail = std::string(softmax_uneven_status_name(status)) + ": " + softmax_uneven_last_message();
  } else if (!sound) {
    detail = "a CUDA call failed";
  } else {
    detail = test->compare();
  }
  verdict->note(detail.empty(), test->shape().name, how, name == nullptr ? "?" : name, detail);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::printf("usage: %s <folder of cubins>\n", words[0]);
    return 2;
  }
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  if (!worked(cuInit(0), "cuInit") || !worked(cuDeviceGet(&device, 0), "cuDeviceGet") ||
      !worked(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") ||
      !worked(cuCtxSetCurrent(context), "cuCtxSetCurrent") ||
      !worked(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate")) {
    return 3;
  }
  softmax_uneven_launcher* launcher = nullptr;
  if (softmax_uneven_get(words[1], &launcher) != SOFTMAX_UNEVEN_OK) {
    std::printf("FAIL %s\n", softmax_uneven_last_message());
    return 1;
  }
  const Shape shapes[] = {
      {"small", 64, 1024, 16}, {"tail", 33, 4099, 16}, {"ragged", 7, 1001, 0},  {"one row", 1, 20000, 16},
      {"short", 5, 3, 16},     {"one", 3, 1, 16},      {"long", 2, 300000, 16}, {"empty", 0, 64, 16},
  };
  Verdict verdict;
  for (const Shape& shape : shapes) {
    Case test(shape);
    if (!test.upload()) return 3;
    char text[2048];
    if (&shape == shapes && softmax_uneven_describe(launcher, &test.arguments(), &test.buffers(), nullptr, text,
                                                sizeof text) == SOFTMAX_UNEVEN_OK) {
      std::printf("%s\n", text);
    }
    check(launcher, &test, nullptr, false, stream, &verdict);
    check(launcher, &test, nullptr, true, stream, &verdict);
    for (int i = 0; i < softmax_uneven_rung_count(); ++i) {
      check(launcher, &test, softmax_uneven_rung(i), false, stream, &verdict);
    }
  }
  (void)cuStreamDestroy(stream);
  std::printf("%s %d of %d\n", verdict.failed == 0 ? "PASS" : "FAIL", verdict.ran - verdict.failed, verdict.ran);
  return verdict.failed == 0 ? 0 : 1;
}
