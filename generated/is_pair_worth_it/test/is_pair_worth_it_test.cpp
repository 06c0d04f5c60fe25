// Runs is_pair_worth_it on the GPU at hand and compares it with a loop on the CPU. Prints a line for each case and exits 1 when
// one of them fails.
//
//   is_pair_worth_it_test <folder of cubins>
//
// Each case runs the rung that the ladder picks, every rung that can be forced, and the picked one from a CUDA graph.
// Inputs are small integers, so that sums are exact; what is left is the rounding of the output type.
#include "is_pair_worth_it.h"

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

using A = bf16;
using B = bf16;
using C = bf16;
using D = bf16;
constexpr bool kAKMajor = true;
constexpr bool kBKMajor = true;
constexpr bool kCNMajor = true;
constexpr bool kDNMajor = true;
constexpr std::uint8_t kPoison = 0xA5;

// --- the reference ------------------------------------------------------------------------------------------------

double activation(double x) {
  return x;
}

// A matrix of the batch: `rows` x `columns`, one of which is contiguous; the other's stride is `ld`.
struct Layout {
  std::int64_t ld;
  std::int64_t batch_stride;
  bool rows_contiguous;

  std::int64_t at(std::int64_t layer, std::int64_t row, std::int64_t column) const {
    return layer * batch_stride + (rows_contiguous ? column * ld + row : row * ld + column);
  }
};

struct Shape {
  const char* name;
  std::int64_t m, n, k, batch;
  std::int64_t pad_bytes;  // leading dimensions are multiples of so many bytes; 0: one element more than packed
};

Layout layout(std::int64_t rows, std::int64_t columns, bool rows_contiguous, std::size_t element,
              std::int64_t pad_bytes) {
  const std::int64_t inner = rows_contiguous ? rows : columns;
  const std::int64_t outer = rows_contiguous ? columns : rows;
  const std::int64_t unit = std::max<std::int64_t>(pad_bytes / static_cast<std::int64_t>(element), 1);
  const std::int64_t ld = pad_bytes == 0 ? inner + 1 : std::max<std::int64_t>((inner + unit - 1) / unit * unit, unit);
  return Layout{ld, ld * std::max<std::int64_t>(outer, 1), rows_contiguous};
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

// One shape: inputs, reference, and the comparison of what a launch left in D.
class Case {
 public:
  explicit Case(const Shape& shape)
      : shape_(shape),
        a_(layout(shape.m, shape.k, !kAKMajor, sizeof(A::Bits), shape.pad_bytes)),
        b_(layout(shape.k, shape.n, kBKMajor, sizeof(B::Bits), shape.pad_bytes)),
        c_(layout(shape.m, shape.n, !kCNMajor, sizeof(C::Bits), shape.pad_bytes)),
        d_(layout(shape.m, shape.n, !kDNMajor, sizeof(D::Bits), shape.pad_bytes)),
        a_values_(integers<A>(a_.batch_stride * shape.batch, 1)),
        b_values_(integers<B>(b_.batch_stride * shape.batch, 2)),
        c_values_(integers<C>(c_.batch_stride * shape.batch, 3)),
        bias_values_(integers<D>(std::max(shape.m, shape.n), 4)),
        scale_values_{0.5f, 2.0f},
        d_values_(static_cast<std::size_t>(std::max<std::int64_t>(d_.batch_stride * shape.batch, 1))),
        a_memory_(a_values_.size() * sizeof(A::Bits)),
        b_memory_(b_values_.size() * sizeof(B::Bits)),
        c_memory_(c_values_.size() * sizeof(C::Bits)),
        bias_memory_(bias_values_.size() * sizeof(D::Bits)),
        scale_memory_(2 * sizeof(float)),
        d_memory_(d_values_.size() * sizeof(D::Bits)) {
    arguments_ = is_pair_worth_it_defaults();
    arguments_.m = shape.m;
    arguments_.n = shape.n;
    arguments_.k = shape.k;
    arguments_.batch = shape.batch;
    arguments_.lda = a_.ld;
    arguments_.batch_stride_a = a_.batch_stride;
    arguments_.ldb = b_.ld;
    arguments_.batch_stride_b = b_.batch_stride;
    arguments_.ldd = d_.ld;
    arguments_.batch_stride_d = d_.batch_stride;
    buffers_ = {};
    buffers_.A = a_memory_.pointer();
    buffers_.B = b_memory_.pointer();
    buffers_.D = d_memory_.pointer();
  }

  bool upload() {
    return a_memory_.upload(a_values_) && b_memory_.upload(b_values_) && c_memory_.upload(c_values_) &&
           bias_memory_.upload(bias_values_) && scale_memory_.upload(scale_values_);
  }

  const is_pair_worth_it_arguments& arguments() const { return arguments_; }
  const is_pair_worth_it_buffers& buffers() const { return buffers_; }
  const Shape& shape() const { return shape_; }
  bool poison() { return d_memory_.fill(kPoison); }

  // Empty where D is right: every element within its bound, every byte outside of [m, n] untouched.
  std::string compare() {
    if (!d_memory_.download(&d_values_)) return "cannot read D";
    std::vector<bool> inside(d_values_.size(), false);
    for (std::int64_t layer = 0; layer < shape_.batch; ++layer) {
      for (std::int64_t row = 0; row < shape_.m; ++row) {
        for (std::int64_t column = 0; column < shape_.n; ++column) {
          const std::size_t index = static_cast<std::size_t>(d_.at(layer, row, column));
          inside[index] = true;
          double bound = 0.0;
          const double expected = reference(layer, row, column, &bound);
          const double got = D::to(d_values_[index]);
          if (!(std::fabs(got - expected) <= bound)) {
            char text[160];
            std::snprintf(text, sizeof text, "D[%lld][%lld][%lld] is %g, expected %g within %g",
                          static_cast<long long>(layer), static_cast<long long>(row),
                          static_cast<long long>(column), got, expected, bound);
            return text;
          }
        }
      }
    }
    D::Bits untouched;
    std::memset(&untouched, kPoison, sizeof untouched);
    for (std::size_t i = 0; i < d_values_.size(); ++i) {
      if (!inside[i] && d_values_[i] != untouched) return "padding of D was written at element " + std::to_string(i);
    }
    return "";
  }

 private:
  double reference(std::int64_t layer, std::int64_t row, std::int64_t column, double* bound) const {
    double sum = 0.0, size = 0.0;
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      const double product = A::to(a_values_[static_cast<std::size_t>(a_.at(layer, row, k))]) *
                             B::to(b_values_[static_cast<std::size_t>(b_.at(layer, k, column))]);
      sum += product;
      size += std::fabs(product);
    }
    double scale = arguments_.alpha;
    double value = scale * sum;
    size *= std::fabs(scale);
    const double result = activation(value);
    *bound = D::kRoundoff * std::fabs(result) + 4e-6 * size + 1e-30;
    return result;
  }

  Shape shape_;
  Layout a_, b_, c_, d_;
  std::vector<A::Bits> a_values_;
  std::vector<B::Bits> b_values_;
  std::vector<C::Bits> c_values_;
  std::vector<D::Bits> bias_values_;
  std::vector<float> scale_values_;
  std::vector<D::Bits> d_values_;
  Memory a_memory_, b_memory_, c_memory_, bias_memory_, scale_memory_, d_memory_;
  is_pair_worth_it_arguments arguments_;
  is_pair_worth_it_buffers buffers_;
};

// One launch of `rung` (null: the one that the ladder picks), directly or from a graph.
void check(const is_pair_worth_it_launcher* launcher, Case* test, const char* rung, bool graph, CUstream stream,
           Verdict* verdict) {
  const char* how = graph ? "graph" : rung == nullptr ? "picked" : "forced";
  const is_pair_worth_it_options options = {0, rung};
  const is_pair_worth_it_arguments* arguments = &test->arguments();
  const is_pair_worth_it_buffers* buffers = &test->buffers();
  const char* name = rung;
  std::size_t bytes = 0;
  is_pair_worth_it_status status = is_pair_worth_it_pick(launcher, arguments, buffers, &options, &name);
  if (status == IS_PAIR_WORTH_IT_RUNG_UNAVAILABLE) return;
  if (status == IS_PAIR_WORTH_IT_OK) status = is_pair_worth_it_workspace_bytes(launcher, arguments, buffers, &options, &bytes);
  Memory memory(bytes);
  void* workspace = memory.pointer();
  bool sound = test->poison() && memory.fill(kPoison);
  if (status == IS_PAIR_WORTH_IT_OK) {
    status = is_pair_worth_it_prepare_workspace(launcher, arguments, buffers, &options, workspace, memory.bytes(), stream);
  }
  sound = sound && worked(cuStreamSynchronize(stream), "cuStreamSynchronize");
  CUgraph recorded = nullptr;
  CUgraphExec executable = nullptr;
  if (graph) {
    sound = sound && worked(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  }
  if (status == IS_PAIR_WORTH_IT_OK) {
    status = is_pair_worth_it_run(launcher, arguments, buffers, &options, workspace, memory.bytes(), stream);
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
  if (status != IS_PAIR_WORTH_IT_OK) {
    detail = std::string(is_pair_worth_it_status_name(status)) + ": " + is_pair_worth_it_last_message();
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
  is_pair_worth_it_launcher* launcher = nullptr;
  if (is_pair_worth_it_get(words[1], &launcher) != IS_PAIR_WORTH_IT_OK) {
    std::printf("FAIL %s\n", is_pair_worth_it_last_message());
    return 1;
  }
  const Shape shapes[] = {
      {"small", 256, 256, 128, 1, 16},   {"tail", 257, 129, 72, 2, 16},  {"ragged", 131, 67, 33, 2, 0},
      {"one row", 1, 96, 200, 1, 16},    {"short k", 130, 70, 8, 1, 16}, {"no k", 65, 40, 0, 1, 16},
      {"empty", 0, 64, 64, 1, 16},
  };
  Verdict verdict;
  for (const Shape& shape : shapes) {
    Case test(shape);
    if (!test.upload()) return 3;
    char text[2048];
    if (&shape == shapes && is_pair_worth_it_describe(launcher, &test.arguments(), &test.buffers(), nullptr, text,
                                                sizeof text) == IS_PAIR_WORTH_IT_OK) {
      std::printf("%s\n", text);
    }
    check(launcher, &test, nullptr, false, stream, &verdict);
    check(launcher, &test, nullptr, true, stream, &verdict);
    for (int i = 0; i < is_pair_worth_it_rung_count(); ++i) {
      check(launcher, &test, is_pair_worth_it_rung(i), false, stream, &verdict);
    }
  }
  (void)cuStreamDestroy(stream);
  std::printf("%s %d of %d\n", verdict.failed == 0 ? "PASS" : "FAIL", verdict.ran - verdict.failed, verdict.ran);
  return verdict.failed == 0 ? 0 : 1;
}
