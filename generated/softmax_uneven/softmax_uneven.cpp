// softmax_uneven: the host side of this bundle. What is the same for every bundle is in launcher/driver.h.
#include "softmax_uneven.h"

#include "launcher/arithmetic.h"
#include "launcher/driver.h"
#include "launcher/runtime_file.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

namespace {

using Arguments = softmax_uneven_arguments;
using Buffers = softmax_uneven_buffers;
using Options = softmax_uneven_options;

// Everything that an expression of launch.json may name.
struct Values {
  Number rows;
  Number cols;
  Number row_stride;
  Number out_stride;
  Number num_sms;
  Number sm_budget;
};

constexpr int kKernels = 10;
constexpr int kRungs = 10;
constexpr int kSpans = 1;

const Image kImages_sm100_clc_8x1x1[] = {
    {"sm100_clc_8x1x1.sm_103a.cubin", 10, 3, true},
    {"sm100_clc_8x1x1.sm_100a.cubin", 10, 0, true},
    {"sm100_clc_8x1x1.sm_100f.cubin", 10, 0, false},
};
const Image kImages_sm100_static_8x1x1[] = {
    {"sm100_static_8x1x1.sm_103a.cubin", 10, 3, true},
    {"sm100_static_8x1x1.sm_100a.cubin", 10, 0, true},
    {"sm100_static_8x1x1.sm_100f.cubin", 10, 0, false},
};
const Image kImages_sm100_clc_4x1x1_streamed[] = {
    {"sm100_clc_4x1x1_streamed.sm_103a.cubin", 10, 3, true},
    {"sm100_clc_4x1x1_streamed.sm_100a.cubin", 10, 0, true},
    {"sm100_clc_4x1x1_streamed.sm_100f.cubin", 10, 0, false},
};
const Image kImages_sm100_clc_2x1x1_streamed[] = {
    {"sm100_clc_2x1x1_streamed.sm_103a.cubin", 10, 3, true},
    {"sm100_clc_2x1x1_streamed.sm_100a.cubin", 10, 0, true},
    {"sm100_clc_2x1x1_streamed.sm_100f.cubin", 10, 0, false},
};
const Image kImages_sm100_one_tile_streamed[] = {
    {"sm100_one_tile_streamed.sm_103a.cubin", 10, 3, true},
    {"sm100_one_tile_streamed.sm_100a.cubin", 10, 0, true},
    {"sm100_one_tile_streamed.sm_100f.cubin", 10, 0, false},
};
const Image kImages_sm90_static_8x1x1[] = {
    {"sm90_static_8x1x1.sm_90a.cubin", 9, 0, true},
};
const Image kImages_sm90_static_4x1x1_streamed[] = {
    {"sm90_static_4x1x1_streamed.sm_90a.cubin", 9, 0, true},
};
const Image kImages_sm90_static_2x1x1_streamed[] = {
    {"sm90_static_2x1x1_streamed.sm_90a.cubin", 9, 0, true},
};
const Image kImages_sm90_one_tile_streamed[] = {
    {"sm90_one_tile_streamed.sm_90a.cubin", 9, 0, true},
};
const Image kImages_portable_one_tile_streamed[] = {
    {"portable_one_tile_streamed.sm_80.cubin", 8, 0, false},
    {"portable_one_tile_streamed.sm_90.cubin", 9, 0, false},
    {"portable_one_tile_streamed.sm_100.cubin", 10, 0, false},
    {"portable_one_tile_streamed.sm_120.cubin", 12, 0, false},
};

const KernelInfo kKernelInfo[kKernels] = {
    {"sm100_clc_8x1x1", "row_reduce", kImages_sm100_clc_8x1x1, 3,
     {256, 1, 1}, {8, 1, 1}, 66384, false, true, false, {0, 0, 0}},
    {"sm100_static_8x1x1", "row_reduce", kImages_sm100_static_8x1x1, 3,
     {256, 1, 1}, {8, 1, 1}, 66320, false, true, false, {0, 0, 0}},
    {"sm100_clc_4x1x1_streamed", "row_reduce", kImages_sm100_clc_4x1x1_streamed, 3,
     {256, 1, 1}, {4, 1, 1}, 33360, false, true, false, {0, 0, 0}},
    {"sm100_clc_2x1x1_streamed", "row_reduce", kImages_sm100_clc_2x1x1_streamed, 3,
     {256, 1, 1}, {2, 1, 1}, 33232, false, true, false, {0, 0, 0}},
    {"sm100_one_tile_streamed", "row_reduce", kImages_sm100_one_tile_streamed, 3,
     {256, 1, 1}, {1, 1, 1}, 33024, false, true, false, {0, 0, 0}},
    {"sm90_static_8x1x1", "row_reduce", kImages_sm90_static_8x1x1, 1,
     {256, 1, 1}, {8, 1, 1}, 66320, false, true, false, {0, 0, 0}},
    {"sm90_static_4x1x1_streamed", "row_reduce", kImages_sm90_static_4x1x1_streamed, 1,
     {256, 1, 1}, {4, 1, 1}, 33296, false, true, false, {0, 0, 0}},
    {"sm90_static_2x1x1_streamed", "row_reduce", kImages_sm90_static_2x1x1_streamed, 1,
     {256, 1, 1}, {2, 1, 1}, 33168, false, true, false, {0, 0, 0}},
    {"sm90_one_tile_streamed", "row_reduce", kImages_sm90_one_tile_streamed, 1,
     {256, 1, 1}, {1, 1, 1}, 33024, false, true, false, {0, 0, 0}},
    {"portable_one_tile_streamed", "row_reduce", kImages_portable_one_tile_streamed, 4,
     {256, 1, 1}, {1, 1, 1}, 33024, false, true, false, {0, 0, 0}},
};

const char* const kSchedules[kKernels] = {
    "clc",
    "static",
    "clc",
    "clc",
    "one tile",
    "static",
    "static",
    "static",
    "one tile",
    "one tile",
};

int kernel_index(const char* id) {
  for (int i = 0; i < kKernels; ++i) {
    if (std::strcmp(kKernelInfo[i].id, id) == 0) return i;
  }
  return -1;
}

}  // namespace

struct softmax_uneven_launcher {
  Device device;
  unsigned long long context;
  RuntimeFile runtime;
  LoadedKernel kernels[kKernels];
  softmax_uneven_launcher* next;
};

namespace {

using Launcher = softmax_uneven_launcher;

// One call of the API, as every kernel of it sees it.
struct Call {
  const Launcher& launcher;
  const Arguments& arguments;
  const Buffers& buffers;
  Values values;
};

inline bool loadable_here(const Launcher& launcher, const char* id) {
  return launcher.kernels[kernel_index(id)].function != nullptr;
}

inline Number residency(const Launcher& launcher, const char* id) {
  return number(launcher.kernels[kernel_index(id)].max_active_clusters);
}

Status read_values(const Launcher& launcher, const Arguments& arguments, const Options* options, Values* values) {
  const struct {
    const char* name;
    std::int64_t value;
    std::int64_t least;
    std::int64_t most;
    Number* destination;
  } rows[] = {
      {"rows", arguments.rows, 0, 2147483647, &values->rows},
      {"cols", arguments.cols, 0, 268435456, &values->cols},
      {"row_stride", arguments.row_stride, 1, INT64_MAX, &values->row_stride},
      {"out_stride", arguments.out_stride, 1, INT64_MAX, &values->out_stride},
  };
  for (const auto& row : rows) {
    if (row.value < row.least) {
      return fail(Status::invalid_argument, "%s is %lld, at least %lld is needed", row.name,
                  static_cast<long long>(row.value), static_cast<long long>(row.least));
    }
    if (row.value > row.most) {
      return fail(Status::invalid_argument, "%s is %lld, at most %lld is taken", row.name,
                  static_cast<long long>(row.value), static_cast<long long>(row.most));
    }
    *row.destination = number(row.value);
  }
  const int sms = launcher.device.sms;
  int budget = options == nullptr ? 0 : options->sm_budget;
  if (budget < 0) return fail(Status::invalid_argument, "sm_budget is %d", budget);
  if (budget == 0) budget = sms;
  values->num_sms = number(sms);
  values->sm_budget = number(budget < sms ? budget : sms);
  return Status::ok;
}

// --- kernels ------------------------------------------------------------------------------------------------------

// 256 threads, clusters of 8 x 1 x 1, clc
Status launch_sm100_clc_8x1x1(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[0];
  const LoadedKernel& kernel = call.launcher.kernels[0];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * 8 * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 8 x 1 x 1, static
Status launch_sm100_static_8x1x1(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[1];
  const LoadedKernel& kernel = call.launcher.kernels[1];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const Number max_active_clusters = number(kernel.max_active_clusters);
  const Number grid[3] = {
      min(min(max_active_clusters, max(sm_budget / 8, 1) + sm_budget / num_sms * max_active_clusters),
          ceil_div(rows, 1)) * 8 * min(cols, 1),
      1,
      1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 4 x 1 x 1, clc
Status launch_sm100_clc_4x1x1_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[2];
  const LoadedKernel& kernel = call.launcher.kernels[2];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * 4 * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 2 x 1 x 1, clc
Status launch_sm100_clc_2x1x1_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[3];
  const LoadedKernel& kernel = call.launcher.kernels[3];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * 2 * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, no clusters, one tile
Status launch_sm100_one_tile_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[4];
  const LoadedKernel& kernel = call.launcher.kernels[4];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 8 x 1 x 1, static
Status launch_sm90_static_8x1x1(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[5];
  const LoadedKernel& kernel = call.launcher.kernels[5];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const Number max_active_clusters = number(kernel.max_active_clusters);
  const Number grid[3] = {
      min(min(max_active_clusters, max(sm_budget / 8, 1) + sm_budget / num_sms * max_active_clusters),
          ceil_div(rows, 1)) * 8 * min(cols, 1),
      1,
      1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 4 x 1 x 1, static
Status launch_sm90_static_4x1x1_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[6];
  const LoadedKernel& kernel = call.launcher.kernels[6];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const Number max_active_clusters = number(kernel.max_active_clusters);
  const Number grid[3] = {
      min(min(max_active_clusters, max(sm_budget / 4, 1) + sm_budget / num_sms * max_active_clusters),
          ceil_div(rows, 1)) * 4 * min(cols, 1),
      1,
      1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, clusters of 2 x 1 x 1, static
Status launch_sm90_static_2x1x1_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[7];
  const LoadedKernel& kernel = call.launcher.kernels[7];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const Number max_active_clusters = number(kernel.max_active_clusters);
  const Number grid[3] = {
      min(min(max_active_clusters, max(sm_budget / 2, 1) + sm_budget / num_sms * max_active_clusters),
          ceil_div(rows, 1)) * 2 * min(cols, 1),
      1,
      1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, no clusters, one tile
Status launch_sm90_one_tile_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[8];
  const LoadedKernel& kernel = call.launcher.kernels[8];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// 256 threads, no clusters, one tile
Status launch_portable_one_tile_streamed(const Call& call, void*, const Span*, CUstream stream) {
  const KernelInfo& info = kKernelInfo[9];
  const LoadedKernel& kernel = call.launcher.kernels[9];
  const Buffers& buffers = call.buffers;
  const Arithmetic arithmetic;
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number grid[3] = {ceil_div(rows, 1) * min(cols, 1), 1, 1};
  const void* x_ = at(buffers.X, 0);
  const void* y_ = at(buffers.Y, 0);
  std::uint32_t rows_ = narrow<std::uint32_t>(rows);
  std::uint32_t cols_ = narrow<std::uint32_t>(cols);
  std::int64_t row_stride_ = narrow<std::int64_t>(row_stride);
  std::int64_t out_stride_ = narrow<std::int64_t>(out_stride);
  if (arithmetic.failed()) return fail(Status::invalid_argument, "%s: an extent or a stride is too large", info.id);
  if (is_empty(grid)) return Status::ok;
  RETURN_IF_FAILED(check_grid(info, grid));
  RETURN_IF_FAILED(check_pointer(buffers.X, "X", 2));
  RETURN_IF_FAILED(check_pointer(buffers.Y, "Y", 2));
  const void* weight_ = nullptr;  // not read by this kernel
  const void* bias_ = nullptr;  // not read by this kernel
  float eps_ = call.arguments.eps;
  void* parameters[] = {
      &x_, &y_, &weight_, &bias_, &rows_, &cols_, &row_stride_, &out_stride_, &eps_,
  };
  return launch(info, kernel, grid, parameters, stream);
}

// --- rungs ------------------------------------------------------------------------------------------------------

std::uint64_t layout_sm100_clc_8x1x1(const Call&, Span*) { return 0; }

Status run_sm100_clc_8x1x1(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm100_clc_8x1x1(call, workspace, spans, stream);
}

bool runs_sm100_clc_8x1x1(const Call& call) {
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm100_clc_8x1x1") &&
         max_active_clusters("sm100_clc_8x1x1") > 0 &&
         sm_budget >= num_sms &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0) &&
         cols <= 131072;
}

const int kKernelsOf_sm100_clc_8x1x1[] = {0};

std::uint64_t layout_sm100_static_8x1x1(const Call&, Span*) { return 0; }

Status run_sm100_static_8x1x1(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm100_static_8x1x1(call, workspace, spans, stream);
}

bool runs_sm100_static_8x1x1(const Call& call) {
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm100_static_8x1x1") &&
         max_active_clusters("sm100_static_8x1x1") > 0 &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0) &&
         cols <= 131072;
}

const int kKernelsOf_sm100_static_8x1x1[] = {1};

std::uint64_t layout_sm100_clc_4x1x1_streamed(const Call&, Span*) { return 0; }

Status run_sm100_clc_4x1x1_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm100_clc_4x1x1_streamed(call, workspace, spans, stream);
}

bool runs_sm100_clc_4x1x1_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm100_clc_4x1x1_streamed") &&
         max_active_clusters("sm100_clc_4x1x1_streamed") > 0 &&
         sm_budget >= num_sms &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm100_clc_4x1x1_streamed[] = {2};

std::uint64_t layout_sm100_clc_2x1x1_streamed(const Call&, Span*) { return 0; }

Status run_sm100_clc_2x1x1_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm100_clc_2x1x1_streamed(call, workspace, spans, stream);
}

bool runs_sm100_clc_2x1x1_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm100_clc_2x1x1_streamed") &&
         max_active_clusters("sm100_clc_2x1x1_streamed") > 0 &&
         sm_budget >= num_sms &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm100_clc_2x1x1_streamed[] = {3};

std::uint64_t layout_sm100_one_tile_streamed(const Call&, Span*) { return 0; }

Status run_sm100_one_tile_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm100_one_tile_streamed(call, workspace, spans, stream);
}

bool runs_sm100_one_tile_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm100_one_tile_streamed") &&
         max_active_clusters("sm100_one_tile_streamed") > 0 &&
         sm_budget >= num_sms &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm100_one_tile_streamed[] = {4};

std::uint64_t layout_sm90_static_8x1x1(const Call&, Span*) { return 0; }

Status run_sm90_static_8x1x1(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm90_static_8x1x1(call, workspace, spans, stream);
}

bool runs_sm90_static_8x1x1(const Call& call) {
  const Number rows = call.values.rows;
  const Number cols = call.values.cols;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm90_static_8x1x1") &&
         max_active_clusters("sm90_static_8x1x1") > 0 &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0) &&
         cols <= 131072;
}

const int kKernelsOf_sm90_static_8x1x1[] = {5};

std::uint64_t layout_sm90_static_4x1x1_streamed(const Call&, Span*) { return 0; }

Status run_sm90_static_4x1x1_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm90_static_4x1x1_streamed(call, workspace, spans, stream);
}

bool runs_sm90_static_4x1x1_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm90_static_4x1x1_streamed") &&
         max_active_clusters("sm90_static_4x1x1_streamed") > 0 &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm90_static_4x1x1_streamed[] = {6};

std::uint64_t layout_sm90_static_2x1x1_streamed(const Call&, Span*) { return 0; }

Status run_sm90_static_2x1x1_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm90_static_2x1x1_streamed(call, workspace, spans, stream);
}

bool runs_sm90_static_2x1x1_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm90_static_2x1x1_streamed") &&
         max_active_clusters("sm90_static_2x1x1_streamed") > 0 &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm90_static_2x1x1_streamed[] = {7};

std::uint64_t layout_sm90_one_tile_streamed(const Call&, Span*) { return 0; }

Status run_sm90_one_tile_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_sm90_one_tile_streamed(call, workspace, spans, stream);
}

bool runs_sm90_one_tile_streamed(const Call& call) {
  const Number rows = call.values.rows;
  const Number row_stride = call.values.row_stride;
  const Number out_stride = call.values.out_stride;
  const Number num_sms = call.values.num_sms;
  const Number sm_budget = call.values.sm_budget;
  const auto loadable = [&](const char* id) { return loadable_here(call.launcher, id); };
  const auto max_active_clusters = [&](const char* id) { return residency(call.launcher, id); };
  const auto aligned = [&](const char* buffer, Number bytes) {
    if (std::strcmp(buffer, "X") == 0) return aligned_to(call.buffers.X, bytes.value);
    if (std::strcmp(buffer, "Y") == 0) return aligned_to(call.buffers.Y, bytes.value);
    return false;
  };
  return loadable("sm90_one_tile_streamed") &&
         max_active_clusters("sm90_one_tile_streamed") > 0 &&
         sm_budget >= num_sms &&
         aligned("X", 16) &&
         aligned("Y", 16) &&
         (rows <= 1 || row_stride * 2 % 16 == 0) &&
         (rows <= 1 || out_stride * 2 % 16 == 0);
}

const int kKernelsOf_sm90_one_tile_streamed[] = {8};

std::uint64_t layout_portable_one_tile_streamed(const Call&, Span*) { return 0; }

Status run_portable_one_tile_streamed(const Call& call, void* workspace, const Span* spans, CUstream stream) {
  return launch_portable_one_tile_streamed(call, workspace, spans, stream);
}

bool runs_portable_one_tile_streamed(const Call&) { return true; }

const int kKernelsOf_portable_one_tile_streamed[] = {9};

struct Rung {
  const char* name;
  const int* kernels;
  int kernel_count;
  bool clc;  // some kernel asks for clusters: runtime.json may switch it off
  bool (*runs)(const Call&);
  std::uint64_t (*layout)(const Call&, Span*);
  Status (*run)(const Call&, void*, const Span*, CUstream);
};

// Best first: the first whose condition holds runs.
const Rung kLadder[kRungs] = {
    {"sm100_clc_8x1x1", kKernelsOf_sm100_clc_8x1x1, 1, true, runs_sm100_clc_8x1x1, layout_sm100_clc_8x1x1,
     run_sm100_clc_8x1x1},
    {"sm100_static_8x1x1", kKernelsOf_sm100_static_8x1x1, 1, false, runs_sm100_static_8x1x1, layout_sm100_static_8x1x1,
     run_sm100_static_8x1x1},
    {"sm100_clc_4x1x1_streamed", kKernelsOf_sm100_clc_4x1x1_streamed, 1, true, runs_sm100_clc_4x1x1_streamed, layout_sm100_clc_4x1x1_streamed,
     run_sm100_clc_4x1x1_streamed},
    {"sm100_clc_2x1x1_streamed", kKernelsOf_sm100_clc_2x1x1_streamed, 1, true, runs_sm100_clc_2x1x1_streamed, layout_sm100_clc_2x1x1_streamed,
     run_sm100_clc_2x1x1_streamed},
    {"sm100_one_tile_streamed", kKernelsOf_sm100_one_tile_streamed, 1, false, runs_sm100_one_tile_streamed, layout_sm100_one_tile_streamed,
     run_sm100_one_tile_streamed},
    {"sm90_static_8x1x1", kKernelsOf_sm90_static_8x1x1, 1, false, runs_sm90_static_8x1x1, layout_sm90_static_8x1x1,
     run_sm90_static_8x1x1},
    {"sm90_static_4x1x1_streamed", kKernelsOf_sm90_static_4x1x1_streamed, 1, false, runs_sm90_static_4x1x1_streamed, layout_sm90_static_4x1x1_streamed,
     run_sm90_static_4x1x1_streamed},
    {"sm90_static_2x1x1_streamed", kKernelsOf_sm90_static_2x1x1_streamed, 1, false, runs_sm90_static_2x1x1_streamed, layout_sm90_static_2x1x1_streamed,
     run_sm90_static_2x1x1_streamed},
    {"sm90_one_tile_streamed", kKernelsOf_sm90_one_tile_streamed, 1, false, runs_sm90_one_tile_streamed, layout_sm90_one_tile_streamed,
     run_sm90_one_tile_streamed},
    {"portable_one_tile_streamed", kKernelsOf_portable_one_tile_streamed, 1, false, runs_portable_one_tile_streamed, layout_portable_one_tile_streamed,
     run_portable_one_tile_streamed},
};

// A call with its rung and its pieces of the workspace.
struct Picked {
  const Rung* rung;
  std::uint64_t workspace_bytes;
  Span spans[kSpans];
};

bool switched_off(const Launcher& launcher, const Rung& rung) { return rung.clc && launcher.runtime.clc_off; }

Status pick(const Call& call, const char* wanted, Picked* picked) {
  bool known = false;
  for (const Rung& each : kLadder) {
    if (wanted != nullptr && std::strcmp(each.name, wanted) != 0) continue;
    known = true;
    if (switched_off(call.launcher, each)) {
      if (wanted == nullptr) continue;
      return fail(Status::rung_unavailable, "the rung %s is switched off in runtime.json: %s", each.name,
                  call.launcher.runtime.reason);
    }
    const Arithmetic arithmetic;
    const bool runs = each.runs(call);
    if (runs) picked->workspace_bytes = each.layout(call, picked->spans);
    if (arithmetic.failed()) {
      return fail(Status::invalid_argument, "%s: an extent or a stride is too large", each.name);
    }
    if (!runs) continue;
    picked->rung = &each;
    return Status::ok;
  }
  if (wanted == nullptr) {
    return fail(Status::no_rung, "no rung of the ladder runs on this device with these arguments");
  }
  if (!known) return fail(Status::invalid_argument, "there is no rung %s", wanted);
  return fail(Status::rung_unavailable, "the rung %s does not run on this device with these arguments", wanted);
}

// What every call of the API begins with: `then(call, picked)` gets the arguments read and the rung picked.
template <typename Then>
Status with_rung(const Launcher* launcher, const Arguments* arguments, const Buffers* buffers, const Options* options,
                 Then then) {
  if (launcher == nullptr || arguments == nullptr || buffers == nullptr) {
    return fail(Status::invalid_argument, "launcher, arguments or buffers is null");
  }
  Call call = {*launcher, *arguments, *buffers, {}};
  Picked picked = {};
  RETURN_IF_FAILED(read_values(*launcher, *arguments, options, &call.values));
  RETURN_IF_FAILED(pick(call, options == nullptr ? nullptr : options->rung, &picked));
  return then(call, picked);
}

Status check_workspace(const Picked& picked, const void* workspace, size_t bytes) {
  const size_t given = workspace == nullptr ? 0 : bytes;
  if (given < picked.workspace_bytes) {
    return fail(Status::workspace_too_small, "%s needs %llu bytes of workspace, %llu are given", picked.rung->name,
                static_cast<unsigned long long>(picked.workspace_bytes), static_cast<unsigned long long>(given));
  }
  if (picked.workspace_bytes != 0 && !aligned_to(workspace, 256)) {
    return fail(Status::invalid_argument, "the workspace is not aligned to 256 bytes");
  }
  return Status::ok;
}

Status zero_spans(const Picked& picked, Init init, void* workspace, CUstream stream) {
  for (const Span& span : picked.spans) {
    if (span.init == init) RETURN_IF_FAILED(zero(workspace, span, stream));
  }
  return Status::ok;
}

// A line of text in the caller's memory, cut where that ends.
class Line {
 public:
  Line(char* text, std::size_t bytes) : text_(text), bytes_(bytes), used_(0) { text_[0] = '\0'; }

#if defined(__GNUC__)
  __attribute__((format(printf, 2, 3)))
#endif
  void
  add(const char* format, ...) {
    va_list values;
    va_start(values, format);
    const int length = std::vsnprintf(text_ + used_, bytes_ - used_, format, values);
    va_end(values);
    if (length > 0) used_ += static_cast<std::size_t>(length);
    if (used_ >= bytes_) used_ = bytes_ - 1;
  }

 private:
  char* text_;
  std::size_t bytes_;
  std::size_t used_;
};

void describe_kernel(const Launcher& launcher, int index, Line* line) {
  const KernelInfo& info = kKernelInfo[index];
  const LoadedKernel& kernel = launcher.kernels[index];
  line->add("%s (%s, clusters of %u x %u x %u, %u threads, image %s, %d clusters resident at once)", info.id,
            kSchedules[index], info.cluster[0], info.cluster[1], info.cluster[2],
            info.block[0] * info.block[1] * info.block[2], kernel.image == nullptr ? "none" : kernel.image->file,
            kernel.max_active_clusters);
}

// Why a rung does not run, of one that does not.
void describe_obstacle(const Call& call, const Rung& rung, Line* line) {
  const Launcher& launcher = call.launcher;
  if (switched_off(launcher, rung)) return line->add("switched off in runtime.json: %s", launcher.runtime.reason);
  for (int i = 0; i < rung.kernel_count; ++i) {
    const LoadedKernel& kernel = launcher.kernels[rung.kernels[i]];
    if (kernel.image == nullptr) {
      return line->add("no image for compute capability %d.%d", launcher.device.major, launcher.device.minor);
    }
    if (kernel.function == nullptr) return line->add("the driver does not load %s", kernel.image->file);
    if (kernel.max_active_clusters == 0) return line->add("no cluster is resident");
  }
  line->add("not with these arguments");
}

void describe(const Call& call, const Rung& rung, Line* line) {
  line->add("%s:", rung.name);
  for (int i = 0; i < rung.kernel_count; ++i) {
    line->add("%s", i == 0 ? " " : ", then ");
    describe_kernel(call.launcher, rung.kernels[i], line);
  }
  line->add(" on %d SMs of compute capability %d.%d", call.launcher.device.sms, call.launcher.device.major,
            call.launcher.device.minor);
  for (const Rung* each = kLadder; each != &rung; ++each) {
    line->add("; not %s: ", each->name);
    describe_obstacle(call, *each, line);
  }
}

void unload(Launcher* launcher) {
  for (LoadedKernel& each : launcher->kernels) {
    if (each.library != nullptr) (void)cuLibraryUnload(each.library);
    each = LoadedKernel{};
  }
}

Status create(const char* image_folder, Launcher** result) {
  if (image_folder == nullptr || result == nullptr) {
    return fail(Status::invalid_argument, "image_folder or launcher is null");
  }
  Launcher* launcher = new (std::nothrow) Launcher{};
  if (launcher == nullptr) return fail(Status::out_of_memory, "no host memory for a launcher");
  Status status = read_device(&launcher->device);
  if (status == Status::ok) status = read_runtime_file(image_folder, &launcher->runtime);
  for (int i = 0; i < kKernels && status == Status::ok; ++i) {
    status = load_kernel(kKernelInfo[i], launcher->device, image_folder, &launcher->kernels[i]);
  }
  if (status != Status::ok) {
    unload(launcher);
    delete launcher;
    return status;
  }
  *result = launcher;
  return Status::ok;
}

std::mutex shared_mutex;
Launcher* shared_launchers = nullptr;

softmax_uneven_status api(Status status) { return static_cast<softmax_uneven_status>(status); }

}  // namespace

softmax_uneven_arguments softmax_uneven_defaults(void) {
  Arguments arguments = {};
  arguments.rows = 1024;
  arguments.cols = 131072;
  arguments.row_stride = 131072;
  arguments.out_stride = 131072;
  arguments.eps = 1e-05f;
  return arguments;
}

softmax_uneven_status softmax_uneven_create(const char* image_folder, softmax_uneven_launcher** launcher) {
  return api(create(image_folder, launcher));
}

void softmax_uneven_destroy(softmax_uneven_launcher* launcher) {
  if (launcher == nullptr) return;
  unload(launcher);
  delete launcher;
}

softmax_uneven_status softmax_uneven_get(const char* image_folder, softmax_uneven_launcher** launcher) {
  CUcontext context = nullptr;
  unsigned long long id = 0;
  if (launcher == nullptr) return api(fail(Status::invalid_argument, "launcher is null"));
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr || cuCtxGetId(context, &id) != CUDA_SUCCESS) {
    return api(fail(Status::no_context, "no CUDA context is current: call cudaSetDevice or cuCtxSetCurrent first"));
  }
  const std::lock_guard<std::mutex> lock(shared_mutex);
  for (Launcher* each = shared_launchers; each != nullptr; each = each->next) {
    if (each->context == id) {
      *launcher = each;
      return api(Status::ok);
    }
  }
  const Status status = create(image_folder, launcher);
  if (status == Status::ok) {
    (*launcher)->context = id;
    (*launcher)->next = shared_launchers;
    shared_launchers = *launcher;
  }
  return api(status);
}

softmax_uneven_status softmax_uneven_run(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream) {
  return api(with_rung(launcher, arguments, buffers, options, [&](const Call& call, const Picked& picked) {
    RETURN_IF_FAILED(check_workspace(picked, workspace, workspace_bytes));
    RETURN_IF_FAILED(zero_spans(picked, Init::zeros, workspace, stream));
    return picked.rung->run(call, workspace, picked.spans, stream);
  }));
}

softmax_uneven_status softmax_uneven_pick(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, const char** rung) {
  if (rung == nullptr) return api(fail(Status::invalid_argument, "rung is null"));
  return api(with_rung(launcher, arguments, buffers, options, [&](const Call&, const Picked& picked) {
    *rung = picked.rung->name;
    return Status::ok;
  }));
}

softmax_uneven_status softmax_uneven_workspace_bytes(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, size_t* bytes) {
  if (bytes == nullptr) return api(fail(Status::invalid_argument, "bytes is null"));
  return api(with_rung(launcher, arguments, buffers, options, [&](const Call&, const Picked& picked) {
    *bytes = static_cast<size_t>(picked.workspace_bytes);
    return Status::ok;
  }));
}

softmax_uneven_status softmax_uneven_prepare_workspace(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream) {
  return api(with_rung(launcher, arguments, buffers, options, [&](const Call&, const Picked& picked) {
    RETURN_IF_FAILED(check_workspace(picked, workspace, workspace_bytes));
    return zero_spans(picked, Init::self_resetting, workspace, stream);
  }));
}

softmax_uneven_status softmax_uneven_describe(const softmax_uneven_launcher* launcher, const softmax_uneven_arguments* arguments,
    const softmax_uneven_buffers* buffers, const softmax_uneven_options* options, char* text, size_t text_bytes) {
  if (text == nullptr || text_bytes == 0) return api(fail(Status::invalid_argument, "text is null or has no bytes"));
  return api(with_rung(launcher, arguments, buffers, options, [&](const Call& call, const Picked& picked) {
    Line line(text, text_bytes);
    describe(call, *picked.rung, &line);
    return Status::ok;
  }));
}

softmax_uneven_status softmax_uneven_residency(const softmax_uneven_launcher* launcher, const char* kernel,
    int* max_active_clusters) {
  if (launcher == nullptr || kernel == nullptr || max_active_clusters == nullptr) {
    return api(fail(Status::invalid_argument, "launcher, kernel or max_active_clusters is null"));
  }
  const int index = kernel_index(kernel);
  if (index < 0) return api(fail(Status::invalid_argument, "there is no kernel %s", kernel));
  *max_active_clusters = launcher->kernels[index].max_active_clusters;
  return api(Status::ok);
}

int softmax_uneven_rung_count(void) { return kRungs; }

const char* softmax_uneven_rung(int index) { return index >= 0 && index < kRungs ? kLadder[index].name : nullptr; }

const char* softmax_uneven_status_name(softmax_uneven_status status) {
  static const char* const names[] = {
      "ok",      "invalid argument", "no context",          "image missing", "no rung",
      "rung unavailable", "workspace too small", "out of memory", "driver error", "bad runtime file"};
  return status >= 0 && status <= 9 ? names[status] : "unknown";
}

const char* softmax_uneven_last_message(void) { return message_buffer(); }
