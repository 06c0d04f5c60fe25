// A driver that launches nothing: it writes down what it is asked. `fake` says what the device is like.
#include "driver.h"

#include <cstdio>
#include <cstring>

FakeDevice fake;

CUresult called(const std::string& name) {
  fake.trace.push_back(name);
  const auto found = fake.fails.find(name);
  return found == fake.fails.end() ? CUDA_SUCCESS : found->second;
}

namespace {

struct Loaded {
  std::string file;
};

Loaded* as_loaded(const void* handle) { return static_cast<Loaded*>(const_cast<void*>(handle)); }

}  // namespace

extern "C" {

CUresult cuGetErrorName(CUresult result, const char** name) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    default: *name = "CUDA_ERROR";
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = fake.sms; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = fake.major; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = fake.minor; break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = fake.major >= 9; break;
  }
  return called("cuDeviceGetAttribute");
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return fake.context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = fake.context ? reinterpret_cast<CUcontext>(&fake) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext, unsigned long long* id) {
  *id = static_cast<unsigned long long>(fake.context);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption*,
                               void**, unsigned) {
  const std::string file = std::strrchr(path, '/') + 1;
  if (fake.missing.count(file) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (fake.refused.count(file) != 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (const CUresult result = called("cuLibraryLoadFromFile"); result != CUDA_SUCCESS) return result;
  ++fake.loads;
  *library = reinterpret_cast<CUlibrary>(new Loaded{file});
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  --fake.loads;
  delete as_loaded(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char*) {
  *kernel = reinterpret_cast<CUkernel>(library);
  return called("cuLibraryGetKernel");
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return called("cuKernelGetFunction");
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
  static const char* const names[] = {"smem", "carveout", "nonportable"};
  const CUresult result = called(std::string("cuFuncSetAttribute ") + names[attribute]);
  const bool is_smem = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  return is_smem && value > fake.smem_limit ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig*) {
  const auto found = fake.residency.find(as_loaded(function)->file);
  *clusters = found == fake.residency.end() ? 66 : found->second;
  return called("cuOccupancyMaxActiveClusters");
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 2;
  return called("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = called("cuTensorMapEncodeTiled"); result != CUDA_SUCCESS) return result;
  std::printf("map %llx", static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(address)));
  for (cuuint32_t i = 0; i < rank; ++i) std::printf(" %llu", static_cast<unsigned long long>(extents[i]));
  for (cuuint32_t i = 0; i + 1 < rank; ++i) std::printf(" %llu", static_cast<unsigned long long>(strides[i]));
  for (cuuint32_t i = 0; i < rank; ++i) std::printf(" %u", box[i]);
  std::printf("\n");
  std::memset(map, 0x4d, sizeof *map);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char byte, std::size_t bytes, CUstream) {
  if (const CUresult result = called("cuMemsetD8Async"); result != CUDA_SUCCESS) return result;
  std::printf("memset %llx %u %zu\n", address, byte, bytes);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  const std::string& file = as_loaded(function)->file;
  unsigned cluster[3] = {1, 1, 1};
  unsigned preferred[3] = {0, 0, 0};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) fake.trace.push_back("overlap");
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) {
      preferred[0] = config->attrs[i].value.preferredClusterDim.x;
      preferred[1] = config->attrs[i].value.preferredClusterDim.y;
      preferred[2] = config->attrs[i].value.preferredClusterDim.z;
    }
    if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    cluster[0] = config->attrs[i].value.clusterDim.x;
    cluster[1] = config->attrs[i].value.clusterDim.y;
    cluster[2] = config->attrs[i].value.clusterDim.z;
  }
  std::printf("launch %s %u %u %u %u %u %u %u %u %u %u %llx", file.c_str(), config->gridDimX, config->gridDimY,
              config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, cluster[0], cluster[1],
              cluster[2], config->sharedMemBytes,
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(config->hStream)));
  const std::vector<int>& sizes = fake.parameter_bytes[file];
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::printf(" ");
    for (int byte = 0; byte < sizes[i]; ++byte) {
      std::printf("%02x", static_cast<const unsigned char*>(parameters[i])[byte]);
    }
  }
  if (preferred[0] != 0) std::printf(" preferred %u %u %u", preferred[0], preferred[1], preferred[2]);
  std::printf("\n");
  return fake.launch_result;
}

}  // extern "C"
