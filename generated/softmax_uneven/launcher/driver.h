// The part of a host launcher that is the same for every bundle: images, residency, tensor maps, one launch.
//
// Everything here is private to the translation unit that includes it. Nothing throws; what went wrong is a Status and
// a message of the calling thread. Needs the CUDA driver API (cuda.h, libcuda) and nothing else.
#pragma once

#include "arithmetic.h"

#include <cuda.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace {

enum class Status {
  ok = 0,
  invalid_argument = 1,     // an argument or a pointer that no kernel can take
  no_context = 2,           // no CUDA context is current on this thread
  image_missing = 3,        // a cubin that this device needs is not in the folder
  no_rung = 4,              // no entry of the ladder runs here with these arguments
  rung_unavailable = 5,     // the rung that was asked for does not run here with these arguments
  workspace_too_small = 6,  // see *_workspace_bytes
  out_of_memory = 7,        // host memory
  driver_error = 8,         // the CUDA driver refused a call
  bad_runtime_file = 9,     // runtime.json is there and does not say what is switched off
};

inline char* message_buffer() {
  static thread_local char text[512] = "";
  return text;
}

// Keeps the words for the caller's *_last_message() and gives the status back.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
inline Status
fail(Status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(message_buffer(), 512, format, values);
  va_end(values);
  return status;
}

#define RETURN_IF_FAILED(expression)                                 \
  do {                                                               \
    if (const Status outcome = (expression); outcome != Status::ok) { \
      return outcome;                                                \
    }                                                                \
  } while (false)

inline Status driver_failure(CUresult result, const char* call, const char* subject) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  return fail(Status::driver_error, "%s (%s): %s", call, subject, name);
}

// --- kernels ----------------------------------------------------------------------------------------------------

struct Image {
  const char* file;
  int major;
  int minor;
  bool exact;  // loads on this compute capability alone; else also on higher minor versions
};

struct KernelInfo {
  const char* id;
  const char* entry;
  const Image* images;  // the best one for a device first
  int image_count;
  unsigned block[3];
  unsigned cluster[3];
  unsigned dynamic_smem_bytes;
  bool nonportable;            // more than 8 CTAs in a cluster: needs an attribute
  bool max_carveout;           // as much of the L1 cache as possible becomes shared memory
  bool programmatic_launch;    // may start before the kernel before it has ended
  unsigned preferred_cluster[3];  // 0: none
};

// A kernel on the device of one context. `function` is null where no image loads there.
struct LoadedKernel {
  CUlibrary library;
  CUfunction function;
  int max_active_clusters;
  const Image* image;  // null where none is for this device
};

struct Device {
  CUdevice handle;
  int major;
  int minor;
  int sms;
  bool clusters;
};

inline unsigned cluster_size(const KernelInfo& info) { return info.cluster[0] * info.cluster[1] * info.cluster[2]; }

inline Status read_device(Device* device) {
  const CUresult current = cuCtxGetDevice(&device->handle);
  if (current != CUDA_SUCCESS) {
    return fail(Status::no_context, "no CUDA context is current: call cudaSetDevice or cuCtxSetCurrent first");
  }
  int clusters = 0;
  const struct {
    CUdevice_attribute attribute;
    int* value;
  } wanted[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->sms},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, &clusters},
  };
  for (const auto& each : wanted) {
    const CUresult result = cuDeviceGetAttribute(each.value, each.attribute, device->handle);
    if (result != CUDA_SUCCESS) return driver_failure(result, "cuDeviceGetAttribute", "device");
  }
  device->clusters = clusters != 0;
  return Status::ok;
}

// The launch attributes of a kernel; returns how many there are, at most 3.
inline unsigned launch_attributes(const KernelInfo& info, CUlaunchAttribute* attributes) {
  unsigned count = 0;
  if (cluster_size(info) > 1) {
    CUlaunchAttribute& each = attributes[count++];
    each.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    each.value.clusterDim.x = info.cluster[0];
    each.value.clusterDim.y = info.cluster[1];
    each.value.clusterDim.z = info.cluster[2];
  }
  if (info.programmatic_launch) {
    CUlaunchAttribute& each = attributes[count++];
    each.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    each.value.programmaticStreamSerializationAllowed = 1;
  }
#if CUDA_VERSION >= 12080
  if (info.preferred_cluster[0] != 0) {
    CUlaunchAttribute& each = attributes[count++];
    each.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    each.value.preferredClusterDim.x = info.preferred_cluster[0];
    each.value.preferredClusterDim.y = info.preferred_cluster[1];
    each.value.preferredClusterDim.z = info.preferred_cluster[2];
  }
#endif
  return count;
}

// Sets what the kernel needs and counts the clusters that fit on the device at once. A device that cannot hold even one
// is an answer (0), not a failure: the ladder steps down.
inline Status query_residency(const KernelInfo& info, const Device& device, LoadedKernel* kernel) {
  kernel->max_active_clusters = 0;
  CUresult result = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       static_cast<int>(info.dynamic_smem_bytes));
  if (result == CUDA_ERROR_INVALID_VALUE) return Status::ok;  // more shared memory than a block can have here
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuFuncSetAttribute(dynamic shared memory)", info.id);
  if (info.max_carveout) {
    result = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    if (result != CUDA_SUCCESS) return driver_failure(result, "cuFuncSetAttribute(carve-out)", info.id);
  }
  if (!device.clusters) {
    int blocks = 0;
    if (cluster_size(info) > 1) return Status::ok;
    result = cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, kernel->function, static_cast<int>(info.block[0] * info.block[1] * info.block[2]),
        info.dynamic_smem_bytes);
    if (result != CUDA_SUCCESS) return driver_failure(result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", info.id);
    kernel->max_active_clusters = blocks * device.sms;
    return Status::ok;
  }
  if (info.nonportable) {
    result = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (result != CUDA_SUCCESS) return driver_failure(result, "cuFuncSetAttribute(non-portable cluster)", info.id);
  }
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = info.cluster[0];
  attribute.value.clusterDim.y = info.cluster[1];
  attribute.value.clusterDim.z = info.cluster[2];
  CUlaunchConfig config = {};
  config.gridDimX = info.cluster[0];
  config.gridDimY = info.cluster[1];
  config.gridDimZ = info.cluster[2];
  config.blockDimX = info.block[0];
  config.blockDimY = info.block[1];
  config.blockDimZ = info.block[2];
  config.sharedMemBytes = info.dynamic_smem_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  result = cuOccupancyMaxActiveClusters(&kernel->max_active_clusters, kernel->function, &config);
  if (result == CUDA_ERROR_INVALID_CLUSTER_SIZE) {
    kernel->max_active_clusters = 0;
    return Status::ok;
  }
  return result == CUDA_SUCCESS ? Status::ok : driver_failure(result, "cuOccupancyMaxActiveClusters", info.id);
}

// Loads the image of a kernel that fits the device. A kernel without one, and an image that the driver is too old for,
// leave `function` null; a file that should be there and is not is a failure.
inline Status load_kernel(const KernelInfo& info, const Device& device, const char* folder, LoadedKernel* kernel) {
  *kernel = LoadedKernel{};
  const Image* image = nullptr;
  for (int i = 0; i < info.image_count && image == nullptr; ++i) {
    const Image& each = info.images[i];
    const bool fits = each.exact ? each.minor == device.minor : each.minor <= device.minor;
    if (each.major == device.major && fits) image = &each;
  }
  if (image == nullptr) return Status::ok;
  kernel->image = image;
  char path[4096];
  const int length = std::snprintf(path, sizeof path, "%s/%s", folder, image->file);
  if (length < 0 || length >= static_cast<int>(sizeof path)) {
    return fail(Status::invalid_argument, "the folder of images has a name that is too long");
  }
  CUresult result = cuLibraryLoadFromFile(&kernel->library, path, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_ERROR_FILE_NOT_FOUND) {
    return fail(Status::image_missing, "%s is not there: build the bundle first", path);
  }
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
      result == CUDA_ERROR_INVALID_IMAGE) {
    kernel->library = nullptr;
    return Status::ok;
  }
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuLibraryLoadFromFile", path);
  CUkernel handle = nullptr;
  result = cuLibraryGetKernel(&handle, kernel->library, info.entry);
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuLibraryGetKernel", info.entry);
  // The function, not the kernel: the module is loaded into the context now and not by a launch under capture.
  result = cuKernelGetFunction(&kernel->function, handle);
  if (result != CUDA_SUCCESS) return driver_failure(result, "cuKernelGetFunction", info.entry);
  return query_residency(info, device, kernel);
}

// --- one launch ---------------------------------------------------------------------------------------------------

struct TensorMapShape {
  CUtensorMapDataType type;
  cuuint32_t rank;
  Number extents[5];
  Number strides[4];  // bytes, of every dimension but the innermost
  cuuint32_t box[5];
  cuuint32_t element_strides[5];
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

inline Status encode(CUtensorMap* map, const char* name, const void* address, const TensorMapShape& shape) {
  cuuint64_t extents[5] = {};
  cuuint64_t strides[4] = {};
  for (cuuint32_t i = 0; i < shape.rank; ++i) {
    extents[i] = max(shape.extents[i], 1).value;  // the encoder has no empty tensor; the kernel knows the extent
    if (i + 1 < shape.rank) strides[i] = shape.strides[i].value;
  }
  const CUresult result = cuTensorMapEncodeTiled(map, shape.type, shape.rank, const_cast<void*>(address), extents,
                                                 strides, shape.box, shape.element_strides, shape.interleave,
                                                 shape.swizzle, shape.promotion, shape.fill);
  return result == CUDA_SUCCESS ? Status::ok : driver_failure(result, "cuTensorMapEncodeTiled", name);
}

inline bool is_empty(const Number* grid) { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }

inline Status check_grid(const KernelInfo& info, const Number* grid) {
  static const std::uint64_t limits[3] = {2147483647u, 65535u, 65535u};
  for (int axis = 0; axis < 3; ++axis) {
    const std::uint64_t blocks = grid[axis].value;
    if (blocks > limits[axis] || blocks % info.cluster[axis] != 0) {
      return fail(Status::invalid_argument, "%s: a grid of %llu blocks along %c cannot be launched", info.id,
                  static_cast<unsigned long long>(blocks), 'x' + axis);
    }
  }
  return Status::ok;
}

inline Status launch(const KernelInfo& info, const LoadedKernel& kernel, const Number* grid, void** parameters,
                     CUstream stream) {
  if (kernel.function == nullptr) {  // the last rung of a ladder has no condition
    return fail(Status::no_rung, "no image of %s loads on this device", info.id);
  }
  CUlaunchAttribute attributes[3] = {};
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(grid[0].value);
  config.gridDimY = static_cast<unsigned>(grid[1].value);
  config.gridDimZ = static_cast<unsigned>(grid[2].value);
  config.blockDimX = info.block[0];
  config.blockDimY = info.block[1];
  config.blockDimZ = info.block[2];
  config.sharedMemBytes = info.dynamic_smem_bytes;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = launch_attributes(info, attributes);
  const CUresult result = cuLaunchKernelEx(&config, kernel.function, parameters, nullptr);
  return result == CUDA_SUCCESS ? Status::ok : driver_failure(result, "cuLaunchKernelEx", info.id);
}

// --- workspace ----------------------------------------------------------------------------------------------------

enum class Init { none, zeros, self_resetting };

// A piece of the caller's workspace.
struct Span {
  std::uint64_t offset;
  std::uint64_t bytes;
  Init init;
};

inline Span place(std::uint64_t* end, std::uint64_t align, Number bytes, Init init) {
  const Number offset = align_up(*end, align);
  *end = (offset + bytes).value;
  return Span{offset.value, bytes.value, init};
}

inline Status zero(void* workspace, const Span& span, CUstream stream) {
  if (span.bytes == 0) return Status::ok;
  const CUresult result =
      cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(workspace) + span.offset, 0, span.bytes, stream);
  return result == CUDA_SUCCESS ? Status::ok : driver_failure(result, "cuMemsetD8Async", "workspace");
}

inline void* at(void* workspace, const Span& span) {
  return span.bytes == 0 ? nullptr : static_cast<char*>(workspace) + span.offset;
}

inline const void* at(const void* buffer, Number offset_bytes) {
  return static_cast<const char*>(buffer) + offset_bytes.value;
}

inline Number number(std::int64_t value) { return value < 0 ? no_value() : Number(static_cast<std::uint64_t>(value)); }

inline Status check_pointer(const void* address, const char* name, unsigned element_bytes) {
  if (address == nullptr) return fail(Status::invalid_argument, "buffer %s is null", name);
  if (reinterpret_cast<std::uintptr_t>(address) % element_bytes != 0) {
    return fail(Status::invalid_argument, "buffer %s is not aligned to its elements of %u bytes", name, element_bytes);
  }
  return Status::ok;
}

inline bool aligned_to(const void* address, std::uint64_t bytes) {
  return bytes != 0 && reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace
